"""
Where other programs meet the diagnosis: a module for each, with the extra of its name, and what they share.
"""
