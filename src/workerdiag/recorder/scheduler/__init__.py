"""
The flight recorder on the scheduler: which workers are removed, and what nannies report of them.
"""
