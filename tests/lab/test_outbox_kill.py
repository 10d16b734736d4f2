"""
The outbox, killed 200 times at random moments: half of them while the watcher goes its rounds.
"""

from __future__ import annotations

import pytest

from support.outbox_kills import kill_again_and_again

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


@pytest.mark.parametrize("way", ["direct", "rounds"])
def test_no_kill_loses_a_notice_or_repeats_it_under_another_id(tmp_path, way):
    """
    What was committed arrives, in order; a receiver that drops known ids has each once.
    """
    result = kill_again_and_again(tmp_path, kills=100, way=way)
    print(result)  # noqa: T201  the numbers for the report
    assert result.lost == result.unknown == result.disordered == []
    assert result.repeats_without_reason == result.idempotent_repeats == []
    assert result.notices
    assert result.repeats
