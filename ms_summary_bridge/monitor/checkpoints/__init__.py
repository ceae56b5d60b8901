"""The best checkpoint of a run, and the files of it."""
