"""The outbox, killed at random moments: the few times that a unit test has time for."""

from __future__ import annotations

import pytest

from support.outbox_kills import kill_again_and_again


@pytest.mark.slow
@pytest.mark.parametrize("way", ["direct", "rounds"])
def test_no_kill_loses_a_notice_or_repeats_it_under_another_id(tmp_path, way):
    """What was committed arrives, in order; a receiver that drops known ids has each once."""
    result = kill_again_and_again(tmp_path, kills=3, way=way)
    assert result.lost == result.unknown == result.disordered == []
    assert result.repeats_without_reason == result.idempotent_repeats == []
