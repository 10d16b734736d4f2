"""
From matches to a conclusion: arithmetic only, nothing is read or asked here.
"""
