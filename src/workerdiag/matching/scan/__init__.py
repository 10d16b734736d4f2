"""One pass over the bytes of a log: literals first, patterns only where a literal stands."""
