"""
Real clusters, real deaths: see README.md.

Workers import `lab.tasks` from here, so nothing heavy stands in this file.
"""
