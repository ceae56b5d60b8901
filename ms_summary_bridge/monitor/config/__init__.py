"""The monitor's YAML section: its keys, and what is wrong with it."""
