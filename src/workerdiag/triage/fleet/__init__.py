"""
What kills the workers of a whole fleet: the tables of triage and the states of watchers, counted together.
"""
