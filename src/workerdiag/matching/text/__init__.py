"""The parts of log lines: prefixes, times, loggers and levels, and the damage done by copying."""
