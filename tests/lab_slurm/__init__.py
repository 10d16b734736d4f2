"""Real deaths of a real ``SLURMCluster`` in a Slurm of our own."""
