"""Loss landscapes: MindSpore's grid of losses as a mesh and a contour image."""
