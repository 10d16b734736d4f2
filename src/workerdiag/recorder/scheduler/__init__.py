"""The flight recorder on the scheduler: the removals of workers and the reports of nannies."""
