"""
The black box: a small file that holds what a worker was doing, readable after its process is gone.

`layout` says where everything lies, `writer` is for the worker, `reader` for whoever finds the file,
`directories` for where to look. Nothing is imported here: the writer must not load the reader.
"""
