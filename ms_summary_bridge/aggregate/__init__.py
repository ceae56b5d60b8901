"""Statistics over the ranks of a training, from what each rank left."""
