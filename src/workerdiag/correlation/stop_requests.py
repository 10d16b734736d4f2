"""
Orders to several workers at once, which belong to no single death.
"""

from __future__ import annotations

from collections.abc import Iterable

from workerdiag.model.diagnosis import Match
from workerdiag.model.landmark_ids import RETIREMENT
from workerdiag.model.stop_orders import is_restart_event

#: What a scheduler says once of all workers that it retires, restarts or closes with itself.
_TO_MANY = (RETIREMENT, "scheduler.restart", "scheduler.closing")


def split_orders(signs: Iterable[Match], marks: Iterable[Match]) -> tuple[list[Match], list[Match]]:
    """
    The signs in messages that are orders to several workers, which belong to no single death; and the others.
    """
    places = {(each.origin, each.line) for each in marks if each.owner in _TO_MANY and each.line}
    to_many: list[Match] = []
    others: list[Match] = []
    for sign in signs:
        is_to_many = (sign.origin, sign.line) in places or is_restart_event(sign)
        (to_many if is_to_many else others).append(sign)
    return to_many, others
