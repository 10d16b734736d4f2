"""The outbox, killed at random moments: half of the times while the watcher goes its rounds.

``PYTHONPATH=src:tests python tests/lab/test_outbox_kill.py 100`` in the repository kills it 100 times in each way.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import get_args

import pytest

from support.outbox_kills import KillResult, Way, kill_again_and_again

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


def problems_of(result: KillResult) -> list[str]:
    """What must not be."""
    repeats = [*result.repeats_without_reason, *result.idempotent_repeats]
    return [*result.lost, *result.unknown, *result.disordered, *repeats]


@pytest.mark.parametrize("way", get_args(Way))
def test_no_kill_loses_a_notice_or_repeats_it_under_another_id(tmp_path, way):
    """What was committed arrives, in order; a receiver that drops known ids has each once."""
    result = kill_again_and_again(tmp_path, kills=40, way=way)
    assert (problems_of(result), result.notices > 0, result.repeats > 0) == ([], True, True), result


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = [
            kill_again_and_again(Path(tempfile.mkdtemp(dir=folder)), kills=int(sys.argv[1]), way=way)
            for way in get_args(Way)
        ]
    for each in results:
        print(each)  # noqa: T201  it is a program
    sys.exit(any(map(problems_of, results)))
