"""The flight recorder in a nanny, which records how its worker processes exit."""
