"""Inputs that nobody would write, to see what `workerdiag` does with them."""
