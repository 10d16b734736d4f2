"""Exceptions as Dask raises them when workers died."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from distributed.scheduler import KilledWorker

from workerdiag.integrations import diagnose


@pytest.fixture(autouse=True)
def _nothing_asked_before():
    """What other tests have asked does not count."""
    diagnose._ASKED_AT.clear()


@pytest.fixture
def killed():
    """What Dask raises when workers died."""
    return KilledWorker("load-1", SimpleNamespace(address="tcp://127.0.0.1:1"), 3)
