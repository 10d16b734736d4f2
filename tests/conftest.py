"""Settings of all tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# Two cores, shared and under coverage, are slow at times; that breaks no promise.
settings.register_profile("workerdiag", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("workerdiag")

# A shell starts what runs in its background with ^C ignored, and every process started from there ignores it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
