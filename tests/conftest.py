"""
What holds for all tests.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Two cores, shared and under coverage, are slow at times; that breaks no promise.
settings.register_profile("workerdiag", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("workerdiag")
