"""
Places that keep the logs of machines and containers after these are gone.
"""
