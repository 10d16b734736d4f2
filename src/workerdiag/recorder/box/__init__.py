"""The black box: a small file that holds what a worker was doing, readable after its process is gone.

`layout` defines the format, `writer` runs in the worker, `reader` reads the file afterwards, and
`directories` finds it. This module imports nothing, so that the writer does not load the reader.
"""
