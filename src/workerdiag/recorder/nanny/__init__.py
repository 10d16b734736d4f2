"""
The flight recorder in a nanny: how its worker processes end.
"""
