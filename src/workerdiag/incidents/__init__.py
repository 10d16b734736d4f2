"""
From deaths whose evidence has settled to incidents: one for each trouble, with its diagnosis.

The watcher tells people of them, the dashboard shows them.
"""
