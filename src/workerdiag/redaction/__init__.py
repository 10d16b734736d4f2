"""
What must not leave a process: secrets, and on request who and where it was.
"""
