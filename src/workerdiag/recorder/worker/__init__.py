"""The flight recorder in a worker: its black box and what it writes there."""
