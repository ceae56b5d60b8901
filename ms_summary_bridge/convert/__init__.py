"""From one format to the other: a run, a tree, a growing tree; and the proof that both hold the same."""
