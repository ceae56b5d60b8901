"""How a program of ours starts without what it does not need."""
