"""
Watches a cluster: live deaths become incidents, incidents become cases, cases become notices.
"""
