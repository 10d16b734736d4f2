"""What C libraries print to standard error, read from its file or, if configured, copied on its way.

`recorder.worker.capture` records what Python writes. A C library bypasses Python and writes to the file
descriptor.
"""
