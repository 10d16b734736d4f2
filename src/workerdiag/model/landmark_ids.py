"""
Ids of landmarks that more than one stage looks for.
"""

from __future__ import annotations

#: A scheduler has a new worker.
REGISTRATIONS = ("scheduler.register-worker", "event.add-worker")
#: A scheduler retires the workers that it lists.
RETIREMENT = "scheduler.retire"
#: A nanny loses patience with a worker process that was asked to close.
STILL_ALIVE = "nanny.still-alive"
