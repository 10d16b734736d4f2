"""
The flight recorder in a worker: its black box, and what is noted in it.
"""
