"""Where samples and alarms go: journal, console, viewers."""
