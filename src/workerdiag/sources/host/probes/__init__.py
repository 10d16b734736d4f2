"""Probes: modules whose source text is sent to a worker's machine and run there.

Each has ``read(request)``, which returns plain values. It runs on Python 3.8 with only the standard
library, changes nothing, ends within ``request["budget_s"]`` seconds, and does not raise for
what a machine lacks. Probes do not import each other.
"""
