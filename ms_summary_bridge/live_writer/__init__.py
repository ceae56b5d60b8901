"""The process that writes while a training runs, and the way to it."""
