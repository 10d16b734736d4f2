"""
The nouns: what was seen, what is known, what was concluded. No input, no output.
"""
