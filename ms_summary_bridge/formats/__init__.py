"""The two file formats: payload bytes to neutral events and back."""
