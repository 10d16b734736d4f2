"""
Batch systems, asked with their own commands what became of the jobs that the dead ran in.

One module per system; `workerdiag.sources.batch.jobs` knows which jobs are the cluster's,
`workerdiag.sources.batch.source` what all systems have in common.
"""
