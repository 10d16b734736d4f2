"""The flight recorder: keeps the evidence that Dask throws away when a worker dies.

It runs in workers, nannies and schedulers and must neither slow them down nor break them. It imports no
diagnosis code, and omits the facts that it cannot record.
"""
