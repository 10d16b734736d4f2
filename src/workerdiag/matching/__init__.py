"""
Which signs show in which evidence: the only place that runs patterns.
"""
