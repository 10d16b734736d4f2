"""Tools for authors of rules: lint, evaluate, lock and draft them."""
