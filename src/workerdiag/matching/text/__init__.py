"""
What lines of logs are made of: prefixes, times, loggers, levels, and what copying did to them.
"""
