"""
What other programs call when a task or flow of theirs fails; each module needs the extra of its name.
"""
