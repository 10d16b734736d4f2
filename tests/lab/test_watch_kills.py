"""A program that watches, killed at random moments: the few times that there is time for.

``PYTHONPATH=src:tests python tests/lab/test_watch_kills.py 200`` in the repository kills it 200 times.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from support.watch_kills import WatchKillResult, kill_the_watcher

pytestmark = pytest.mark.lab


def problems_of(result: WatchKillResult) -> list[str]:
    """What must not be."""
    return [*result.lost, *result.unknown, *result.idempotent_repeats, *result.disordered]


def test_no_kill_loses_what_workerdiag_watch_has_to_say(tmp_path):
    """Every death is in a case, every notice arrives in order under its id, and a case is resolved once each time."""
    result = kill_the_watcher(tmp_path, kills=12)
    assert (problems_of(result), result.deaths > 0, result.notices > 0) == ([], True, True), result


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = kill_the_watcher(Path(folder), kills=int(sys.argv[1]))
    print(found)  # noqa: T201  it is a program
    sys.exit(bool(problems_of(found)))
