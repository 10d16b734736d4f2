"""What is kept of the evidence while it passes by, so that it can be saved and judged again."""
