"""What all ranks of a training tell each other of themselves, by collectives, where the configuration asks for it."""
