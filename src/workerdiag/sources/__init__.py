"""
Places that can be asked what they know about dead workers: each reads only, gives up in time, never raises.
"""
