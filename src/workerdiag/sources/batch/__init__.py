"""Sources that query batch systems, with their own commands, about the jobs in which workers died.

Each system has a module; `workerdiag.sources.batch.jobs` finds the cluster's jobs, and
`workerdiag.sources.batch.source` has what all systems share.
"""
