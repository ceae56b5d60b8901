"""Compare: what trainings came to, side by side: a row for each, and what changed between two."""
