"""
Many logs at once: deaths, their causes and what could not be read, as tables.
"""
