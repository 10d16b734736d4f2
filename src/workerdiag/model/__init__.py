"""The value classes: evidence, rules and findings. No input, no output."""
