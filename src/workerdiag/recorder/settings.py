"""
The name of the recorder, the same in workers, nannies and schedulers.
"""

from __future__ import annotations

#: Under what name the plugins are registered, and what a server carries while it records.
PLUGIN_NAME = "workerdiag-recorder"
