"""A logdir read without a conversion: its values as columns and as iterators, and what is in it."""
