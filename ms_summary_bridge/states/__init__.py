"""States: one judgement of how a run is, with its evidence, from what lies on the disk."""
