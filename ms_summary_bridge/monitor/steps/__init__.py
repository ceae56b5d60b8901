"""What is measured of each step."""
