"""
The flight recorder: keeps the evidence that Dask throws away when a worker dies.

It runs in workers, nannies and schedulers, which it must neither slow down nor break: it imports
nothing that reasons, and what it cannot record it leaves out.
"""
