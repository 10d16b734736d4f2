"""
How much the signs of one cause say together: each fact once, by its strongest sign.

A fact (`fact` in a rule) or one and the same message counts once, however many signs it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

from attrs import frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.rules import LONE_GRADES
from workerdiag.model.signs import GRADES, ExitSign, Sign, TogetherSign
from workerdiag.model.vocabulary import Grade

#: The fact that says how a process ended.
EXIT_FACT = "exit"


@frozen(kw_only=True)
class SignEvidence:
    """
    One sign that shows in one case, with the matches that show it.
    """

    sign: Sign
    matches: tuple[Match, ...] = ()


def fact_weights(seen: Iterable[SignEvidence], *, is_everyday: bool = False) -> tuple[float, ...]:
    """
    The logarithm of the likelihood ratio of each fact.

    Args:
        seen: The signs that show.
        is_everyday: Whether the cause ends as every run does (`EVERYDAY_ENDS`), and nothing tells that a
            process ended. A sign that stands alone is then worth less: `LONE_GRADES`.
    """
    by_fact: dict[str, list[SignEvidence]] = {}
    for each in seen:
        by_fact.setdefault(each.sign.fact or each.sign.name, []).append(each)
    strongest = [_strongest(some) for some in _distinct_groups(list(by_fact.values()))]
    is_exit_seen = any(each.sign.fact == EXIT_FACT for some in by_fact.values() for each in some)
    is_alone = sum(grade != "hint" for grade in strongest) == 1
    is_doubtful = is_everyday and is_alone and not is_exit_seen
    return tuple(
        log(LONE_GRADES.get(each, GRADES[each]) if is_doubtful else GRADES[each]) for each in strongest
    )


def _strongest(some: Iterable[SignEvidence]) -> Grade:
    return max((each.sign.grade for each in some), key=lambda grade: GRADES[grade])


def _distinct_groups(groups: Sequence[list[SignEvidence]]) -> list[list[SignEvidence]]:
    """
    The groups, those that rest on nothing but messages of another one as a part of it.
    """
    whole: list[tuple[frozenset[tuple[str, int, str]], list[SignEvidence]]] = []
    for group in sorted(groups, key=lambda some: -len(_group_messages(some))):
        messages = _group_messages(group)
        same = next((some for known, some in whole if messages and messages <= known), None)
        if same is None:
            whole.append((messages, list(group)))
        else:
            same += group
    return [some for _, some in whole]


def _is_of_end(seen: SignEvidence) -> bool:
    """
    Whether the end of the process shows the sign, and not the reports of an exit alone.
    """
    return isinstance(seen.sign, ExitSign) and not (seen.matches and all(each.sign for each in seen.matches))


def _group_messages(group: Iterable[SignEvidence]) -> frozenset[tuple[str, int, str]]:
    """
    The messages that show a group; none where it says more than they do: an exit, or signs together.
    """
    if any(isinstance(each.sign, TogetherSign) or _is_of_end(each) for each in group):
        return frozenset()
    return frozenset(
        (match.origin, match.line, "" if match.line else match.text)
        for each in group
        for match in each.matches
    )
