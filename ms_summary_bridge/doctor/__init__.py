"""Doctor: why a person sees nothing, one finding for each check, with what mends it."""
