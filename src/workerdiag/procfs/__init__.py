"""Processes and control groups of this machine, read from the kernel's files; standard library only."""
