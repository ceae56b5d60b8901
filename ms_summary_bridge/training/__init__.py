"""What the framework tells of a training, measured once for everybody."""
