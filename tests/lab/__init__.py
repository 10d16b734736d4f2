"""Real clusters, real deaths: see README.md.

Workers import `lab.tasks`, so this file imports nothing heavy.
"""
