"""
The machine that a worker died on: its kernel, the worker's control group, disks and limits.
"""
