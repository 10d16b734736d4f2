"""
Messages of a log: which lines around a place make up one, each line taken apart once.
"""
