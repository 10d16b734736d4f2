"""Which signs of which causes show in each death."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from workerdiag.model.diagnosis import Match
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import AbsentSign, Cause, ExitSign, Rulebook, Sign, TogetherSign
from workerdiag.scoring.probabilities import CauseScore, SignEvidence

#: Places of one sign that are tried at most for others close by.
MAX_TOGETHER = 200
#: Signs that show with no match of their own.
_SHOWN_BY_OTHERS = (ExitSign, AbsentSign, TogetherSign)
#: Landmarks by their ids.
MarksByOwner = Mapping[str, Sequence[Match]]


def by_owner(matches: Iterable[Match]) -> dict[str, list[Match]]:
    """The *matches* by the id of their cause or landmark."""
    found: dict[str, list[Match]] = {}
    for each in matches:
        found.setdefault(each.owner, []).append(each)
    return found


class CauseScoring:
    """Scores the causes of a rulebook in each death of an incident."""

    def __init__(self, book: Rulebook, marks: MarksByOwner, inspected: Collection[str]) -> None:
        """Prepare the causes of *book*; *marks* are landmarks, *inspected* the places where absence counts."""
        self._causes = book.active_causes
        self._shown_without_match = book.signs_shown_without_match
        self._marks = marks
        self._inspected = inspected
        #: Causes that show without a match of their own, by what is known of the exit.
        self._shown_by_others: dict[tuple[object, ...], frozenset[str]] = {}

    def scores(
        self, by_cause: Mapping[str, Mapping[str, list[Match]]], end: ProcessEnd | None
    ) -> list[CauseScore]:
        """The evidence for and against each cause that shows.

        *by_cause* has the matches that count in this case, by cause and sign.
        """
        found = []
        for cause_id in sorted((by_cause.keys() | self._causes_shown_by_others(end)) & self._causes.keys()):
            cause, own = self._causes[cause_id], by_cause.get(cause_id, {})
            if evidence := self._evidence_for(cause, own, end):
                against = self._sign_evidence(cause.against, own, end)
                found.append(
                    CauseScore(cause=cause, evidence=evidence, against=against, is_end_known=end is not None)
                )
        return found

    def _causes_shown_by_others(self, end: ProcessEnd | None) -> frozenset[str]:
        exit_ = (end.signal, end.status, end.stop_requested) if end is not None else ()
        if exit_ not in self._shown_by_others:
            self._shown_by_others[exit_] = frozenset(
                cause_id
                for cause_id, signs in self._shown_without_match.items()
                if any(
                    self._may_show(sign, end) and self._matches(sign, {}, end) is not None for sign in signs
                )
            )
        return self._shown_by_others[exit_]

    def _may_show(self, sign: Sign, end: ProcessEnd | None) -> bool:
        """Whether a sign without a match of its own can show and suggest its cause."""
        if isinstance(sign, ExitSign):
            is_there = end is not None and sign.is_for(end.signal, end.status)
        else:
            is_there = not isinstance(sign, TogetherSign) or self._marks.keys() >= set(sign.signs)
        return is_there and _suggests(sign)

    def _evidence_for(
        self, cause: Cause, own: Mapping[str, list[Match]], end: ProcessEnd | None
    ) -> tuple[SignEvidence, ...]:
        """The evidence for *cause*; None if it is only absences or hints, which suggest nothing alone."""
        evidence = self._sign_evidence(cause.signs, own, end)
        return evidence if any(_suggests(each.sign) for each in evidence) else ()

    def _sign_evidence(
        self, signs: Iterable[Sign], own: Mapping[str, list[Match]], end: ProcessEnd | None
    ) -> tuple[SignEvidence, ...]:
        shown = (
            (sign, self._matches(sign, own, end))
            for sign in signs
            if sign.name in own or isinstance(sign, _SHOWN_BY_OTHERS)
        )
        return tuple(
            SignEvidence(sign=sign, matches=tuple(matches)) for sign, matches in shown if matches is not None
        )

    def _matches(
        self, sign: Sign, own: Mapping[str, list[Match]], end: ProcessEnd | None
    ) -> list[Match] | None:
        """The matches that show *sign*, none for an absence; None if it does not show."""
        if isinstance(sign, ExitSign):
            shown = _exit_marks(sign, end) if "process" in sign.by else None
            return own.get(sign.name) if shown is None else [*shown, *own.get(sign.name, ())]
        if isinstance(sign, AbsentSign):
            is_absent = sign.inspected in self._inspected and self._marks.keys().isdisjoint(sign.landmarks)
            return [] if is_absent and end is not None else None
        if isinstance(sign, TogetherSign):
            return _joint_matches(sign, own, self._marks)
        return own.get(sign.name)


def _suggests(sign: Sign) -> bool:
    return not isinstance(sign, AbsentSign) and sign.grade != "hint"


def _exit_marks(sign: ExitSign, end: ProcessEnd | None) -> list[Match] | None:
    """The messages that report such an exit, or None for another exit.

    A process that was asked to stop has none, unless it crashed: the signal only completed the request.
    """
    if end is None or not end.exit_known or (end.stop_requested and not end.crashed):
        return None
    if not sign.is_for(end.signal, end.status):
        return None
    told = [mark for mark in end.marks if mark.role in ("death", "restart")]
    counting = [mark for mark in told if mark.owner not in sign.except_reports]
    return counting[:1] if counting or not told else None


def _joint_matches(
    sign: TogetherSign, own: Mapping[str, list[Match]], marks: MarksByOwner
) -> list[Match] | None:
    def places_of(name: str) -> list[Match]:
        those = own.get(name) or marks.get(name, ())
        return list(islice((each for each in those if each.line), MAX_TOGETHER))

    if not all(own.get(name) or name in marks for name in sign.signs):
        return None
    places = [places_of(name) for name in sign.signs]
    if sign.any_of:
        places.append([each for name in sign.any_of for each in places_of(name)])
    if not all(places):
        return None
    if sign.within_lines == 0:
        return [each[0] for each in places]
    for anchor in places[0]:
        group = [anchor]
        for others in places[1:]:
            near = [
                each
                for each in others
                if each.origin == anchor.origin
                and abs(each.line - anchor.line) <= sign.within_lines
                and not any(each is one for one in group)
                and (not sign.in_order or each.line >= group[-1].line)
            ]
            if not near:
                break
            group.append(min(near, key=lambda each: abs(each.line - anchor.line)))
        else:
            return group
    return None
