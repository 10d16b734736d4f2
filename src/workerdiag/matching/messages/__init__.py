"""Messages of a log: the lines around a place that form a message, each parsed once."""
