"""Numbers out: the values of a logdir as columns, and as iterators."""
