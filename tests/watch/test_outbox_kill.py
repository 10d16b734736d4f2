"""
The outbox, killed at random moments: the few times that a unit test has time for.
"""

from __future__ import annotations

from support.outbox_kills import kill_again_and_again


def test_no_kill_loses_a_notice_or_repeats_it_under_another_id(tmp_path):
    """
    What was committed arrives, in order; a receiver that drops known ids has each once.
    """
    result = kill_again_and_again(tmp_path, kills=4)
    assert result.lost == result.unknown == result.disordered == []
    assert result.repeats_without_reason == result.idempotent_repeats == []
