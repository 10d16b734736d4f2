"""Evidence from the machine that a worker died on: its kernel log, the worker's cgroup, disks and limits."""
