"""What a run is: found in a tree, read as points, kept in an archive, reported."""
