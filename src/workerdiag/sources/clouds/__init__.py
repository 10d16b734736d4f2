"""Sources that ask cloud providers about lost machines, each through the provider's SDK.

They only read. Each SDK is imported when it is used; one that hangs is left behind in its thread.
"""
