"""
What C libraries print to standard error: kept where that is a file, or else, if asked for, copied on its way.

The rest of the recorder knows what Python writes (`recorder.worker.capture`); a C library writes to the file
descriptor, past all of Python.
"""
