"""Turns settled deaths into incidents: one for each trouble, with its diagnosis.

The watcher reports incidents, the dashboard shows them.
"""
