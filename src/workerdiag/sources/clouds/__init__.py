"""
What the providers of the machines say of those that are gone, through each provider's own SDK.

Only reads; an SDK is imported where it is asked, and one that hangs is left behind in its thread.
"""
