"""
Signs of causes, of each kind: in logs, at landmarks, in exits, events and exceptions, absent, together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import field, frozen
from attrs.validators import ge, matches_re

from workerdiag.model.vocabulary import ExitWitness, Grade, Place, Stream

#: How much one sign speaks for a cause: the likelihood ratio of each grade, that is how
#: many times likelier the sign is when the cause is real than when it is not.
#: Judgements, each checked: docs/calibration.md has the ratio that was measured on labelled
#: incidents, with its interval, and docs/what-the-numbers-mean.md says where they differ and why.
GRADES: Mapping[Grade, float] = {
    "decisive": 10000.0,  # the producer says so in as many words
    "strong": 4000.0,  # hardly ever seen otherwise
    "moderate": 700.0,  # the usual reading, with rivals
    "weak": 15.0,  # fits, and fits others as well
    "hint": 3.0,  # by itself nothing
}

_name = matches_re(r"[a-z0-9]+(-[a-z0-9]+)*")


class HasPattern(Protocol):
    """
    A rule for log text.
    """

    @property
    def pattern(self) -> str:
        """
        Its pattern, if it has one alone.
        """
        ...


def pattern_or_patterns(rule: HasPattern | None, _: object, patterns: tuple[str, ...]) -> None:
    """
    Validate `patterns` beside `pattern`: a rule has one of the two.
    """
    if rule is not None and bool(rule.pattern) == bool(patterns):
        raise ValueError("expected one of the keys 'pattern' and 'patterns'")


@frozen(kw_only=True)
class LogSign:
    """
    A message in a log. Patterns are RE2, searched in one whole message, case-insensitive.
    """

    name: str = field(validator=_name)
    pattern: str = ""
    #: Instead of `pattern`: several, of which one is enough.
    patterns: tuple[str, ...] = field(default=(), validator=pattern_or_patterns)
    grade: Grade
    #: A message that also matches this is not the sign (RE2 has no look-around).
    unless: str | None = None
    #: Streams the message must be from; empty: any.
    streams: tuple[Stream, ...] = ()
    #: Signs of one fact share its name and count once, the strongest of them. Default: the name.
    fact: str = ""
    #: Whether it is a sign only if the captured ``worker`` had not registered before in the same log.
    only_unregistered: bool = False
    #: Releases of distributed in which it is worded so: first one with it, first one without.
    introduced: str = ""
    removed: str = ""
    #: Whole log lines that show the sign, and lines that look alike and do not.
    seen: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()

    @property
    def wordings(self) -> tuple[str, ...]:
        """
        The patterns, of which one is enough.
        """
        return self.patterns or (self.pattern,)


@frozen(kw_only=True)
class LandmarkSign:
    """
    A landmark (``knowledge/landmarks``) whose captures fit, e.g. a stop for a given reason.
    """

    name: str = field(validator=_name)
    landmark: str
    grade: Grade
    #: Capture name to RE2 pattern, which must match the whole captured text.
    where: Mapping[str, str] = field(factory=dict, hash=False)
    fact: str = ""
    #: Releases of distributed that show it so, where they are not all that the landmark is for.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class ExitSign:
    """
    The exit of the dead process, whoever reported it.
    """

    name: str = field(validator=_name)
    grade: Grade
    signals: tuple[int, ...] = ()
    statuses: tuple[int, ...] = ()
    by: tuple[ExitWitness, ...] = ("process",)
    #: Reports that do not count for it, by the id of their landmark.
    except_reports: tuple[str, ...] = ()
    #: Any exit status that is not listed elsewhere and is not zero.
    any_failure: bool = False
    fact: str = ""

    def is_for(self, signal: int | None, status: int | None) -> bool:
        """
        Whether it is the sign of a process that ended with that signal or status.
        """
        if signal in self.signals or status in self.statuses:
            return True
        return self.any_failure and signal is None and status not in (None, 0)


@frozen(kw_only=True)
class EventSign:
    """
    An event of the scheduler, the platform or the operating system.
    """

    name: str = field(validator=_name)
    #: RE2, must match the whole topic; ``worker`` stands for any worker's address.
    topic: str
    grade: Grade
    #: Field to RE2 pattern, which must match the whole value, or to a boolean, which must equal it.
    where: Mapping[str, str | bool] = field(factory=dict, hash=False)
    #: Field to the least number that counts.
    at_least: Mapping[str, float] = field(factory=dict, hash=False)
    fact: str = ""
    #: Releases of distributed that show it: first one that does, first one that does not.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class ExceptionSign:
    """
    The exception that the caller caught, or one it carries.
    """

    name: str = field(validator=_name)
    grade: Grade
    #: Names of types, with or without module.
    types: tuple[str, ...] = ()
    #: RE2, searched in the text.
    pattern: str | None = None
    #: True: only raised in a task; False: only not; None: either.
    from_task: bool | None = None
    fact: str = ""
    #: Releases of distributed that show it: first one that does, first one that does not.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class AbsentSign:
    """
    Something that would have been there, was looked for, and is not.
    """

    name: str = field(validator=_name)
    #: Landmarks, none of which was seen for this death.
    landmarks: tuple[str, ...]
    grade: Grade
    #: The place that must have been looked at.
    inspected: Place
    fact: str = ""


@frozen(kw_only=True)
class TogetherSign:
    """
    Several signs or landmarks close together, which say more than each of them alone.
    """

    name: str = field(validator=_name)
    #: Names of signs of the same cause, or ids of landmarks; one named twice must be there twice.
    signs: tuple[str, ...]
    #: More of them, of which one is enough; in order, it comes last.
    any_of: tuple[str, ...] = ()
    grade: Grade
    #: How far apart in one log, at most; 0: anywhere, also in different logs.
    within_lines: int = field(default=200, validator=ge(0))
    #: Whether they must come in the order given.
    in_order: bool = False
    fact: str = ""


Sign = LogSign | LandmarkSign | ExitSign | EventSign | ExceptionSign | AbsentSign | TogetherSign

#: How rule files name each kind.
SIGN_KINDS: Mapping[str, type[Sign]] = {
    "log": LogSign,
    "landmark": LandmarkSign,
    "exit": ExitSign,
    "event": EventSign,
    "exception": ExceptionSign,
    "absent": AbsentSign,
    "together": TogetherSign,
}
