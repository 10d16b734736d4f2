"""
What machines are asked: modules whose text is sent to where a worker died, and run there.

Each has ``read(asked)``, which returns plain values. It has to run on Python 3.8 with the standard
library alone, changes nothing, ends within ``asked["budget_s"]`` seconds, and does not raise for
what a machine lacks. They know nothing of each other.
"""
