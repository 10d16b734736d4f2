"""What the recorder writes and its readers read: the names and numbers by which both recognise it."""

from __future__ import annotations

#: Topic of the scheduler's events under which deaths are reported.
DEATH_TOPIC = "workerdiag-death"
#: Topic of the scheduler's events under which `workerdiag.rescue` says what it does.
ACT_TOPIC = "workerdiag-act"
#: Number of the shape of records and messages, described in docs/recorder.md.
MESSAGE_SCHEMA = 1
#: First bytes of a black box.
BOX_MAGIC = b"WDIAGBOX"
#: Name of the recorder in reports.
RECORDER = "flight recorder"
#: Name under which the plugins are registered, and of what a server carries while it records.
PLUGIN_NAME = "workerdiag-recorder"
