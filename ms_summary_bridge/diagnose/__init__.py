"""Which rank is to blame, from what all ranks of a training left."""
