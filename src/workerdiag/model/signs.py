"""The kinds of signs: in logs, at landmarks, in exits, in events, in exceptions, absent, and together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import field, frozen
from attrs.validators import ge, matches_re

from workerdiag.model.vocabulary import ExitWitness, Grade, Place, Stream

#: The likelihood ratio of each grade: how many times likelier a sign is if the cause is real than if it is
#: not. These are judgements, each checked: docs/calibration.md has the ratio measured on labelled incidents,
#: with its interval, and docs/what-the-numbers-mean.md says where they differ and why.
GRADES: Mapping[Grade, float] = {
    "decisive": 10000.0,  # the producer says so explicitly
    "strong": 4000.0,  # rarely seen otherwise
    "moderate": 700.0,  # the usual reading, with rivals
    "weak": 15.0,  # fits, but fits others too
    "hint": 3.0,  # says nothing alone
}

_name = matches_re(r"[a-z0-9]+(-[a-z0-9]+)*")


class HasPattern(Protocol):
    """A rule for log text."""

    @property
    def pattern(self) -> str:
        """Its pattern, if it has only one."""
        ...


def pattern_or_patterns(rule: HasPattern | None, _: object, patterns: tuple[str, ...]) -> None:
    """Validate that a rule has either `pattern` or `patterns`."""
    if rule is not None and bool(rule.pattern) == bool(patterns):
        raise ValueError("expected one of the keys 'pattern' and 'patterns'")


@frozen(kw_only=True)
class LogSign:
    """A message in a log. Patterns are RE2, searched in one whole message, case-insensitive."""

    name: str = field(validator=_name)
    pattern: str = ""
    #: Alternative patterns instead of `pattern`; one match is enough.
    patterns: tuple[str, ...] = field(default=(), validator=pattern_or_patterns)
    grade: Grade
    #: A message that also matches this is not the sign (RE2 has no look-around).
    unless: str | None = None
    #: Streams from which the message must come; empty: any.
    streams: tuple[Stream, ...] = ()
    #: Name of its fact. Of the signs of one fact only the strongest counts. Default: the sign's name.
    fact: str = ""
    #: Whether it is a sign only if the captured ``worker`` has not registered before in the same log.
    only_unregistered: bool = False
    #: Releases of distributed with this wording: the first with it, and the first without.
    introduced: str = ""
    removed: str = ""
    #: Whole log lines that show the sign, and similar lines that do not.
    seen: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()

    @property
    def wordings(self) -> tuple[str, ...]:
        """The alternative patterns; one match is enough."""
        return self.patterns or (self.pattern,)


@frozen(kw_only=True)
class LandmarkSign:
    """A landmark (``knowledge/landmarks``) with certain captures, e.g. a stop for a given reason."""

    name: str = field(validator=_name)
    landmark: str
    grade: Grade
    #: RE2 patterns by capture name; each must match the whole captured text.
    where: Mapping[str, str] = field(factory=dict, hash=False)
    fact: str = ""
    #: Releases of distributed that show it this way, if not all releases of the landmark do.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class ExitSign:
    """The exit of the dead process, whoever reported it."""

    name: str = field(validator=_name)
    grade: Grade
    signals: tuple[int, ...] = ()
    statuses: tuple[int, ...] = ()
    by: tuple[ExitWitness, ...] = ("process",)
    #: Landmark ids of reports that do not count for it.
    except_reports: tuple[str, ...] = ()
    #: Any nonzero exit status that is not listed elsewhere.
    any_failure: bool = False
    fact: str = ""

    def is_for(self, signal: int | None, status: int | None) -> bool:
        """Whether it is the sign of a process that ended with this signal or status."""
        if signal in self.signals or status in self.statuses:
            return True
        return self.any_failure and signal is None and status not in (None, 0)


@frozen(kw_only=True)
class EventSign:
    """An event of the scheduler, the platform or the operating system."""

    name: str = field(validator=_name)
    #: RE2, must match the whole topic; ``worker`` stands for any worker's address.
    topic: str
    grade: Grade
    #: RE2 pattern by field, which must match the whole value; or a boolean, which must equal it.
    where: Mapping[str, str | bool] = field(factory=dict, hash=False)
    #: Minimum number by field.
    at_least: Mapping[str, float] = field(factory=dict, hash=False)
    fact: str = ""
    #: Releases of distributed that show it: the first that does, and the first that does not.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class ExceptionSign:
    """The exception that the caller caught, or an exception in it."""

    name: str = field(validator=_name)
    grade: Grade
    #: Names of exception types, with or without module.
    types: tuple[str, ...] = ()
    #: RE2, searched in the text.
    pattern: str | None = None
    #: True: only if raised in a task; False: only if not; None: either.
    from_task: bool | None = None
    fact: str = ""
    #: Releases of distributed that show it: the first that does, and the first that does not.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class AbsentSign:
    """Something that was looked for where it would have been, and is not there."""

    name: str = field(validator=_name)
    #: Landmarks that were all absent for this death.
    landmarks: tuple[str, ...]
    grade: Grade
    #: The place that must have been inspected.
    inspected: Place
    fact: str = ""


@frozen(kw_only=True)
class TogetherSign:
    """Several signs or landmarks close together, which say more than each alone."""

    name: str = field(validator=_name)
    #: Names of signs of the same cause, or ids of landmarks. A name given twice must show twice.
    signs: tuple[str, ...]
    #: Further names, of which one is enough. With `in_order` it comes last.
    any_of: tuple[str, ...] = ()
    grade: Grade
    #: Maximum distance in one log, in lines; 0: anywhere, even in different logs.
    within_lines: int = field(default=200, validator=ge(0))
    #: Whether they must come in the order given.
    in_order: bool = False
    fact: str = ""


Sign = LogSign | LandmarkSign | ExitSign | EventSign | ExceptionSign | AbsentSign | TogetherSign

#: The name of each kind in rule files.
SIGN_KINDS: Mapping[str, type[Sign]] = {
    "log": LogSign,
    "landmark": LandmarkSign,
    "exit": ExitSign,
    "event": EventSign,
    "exception": ExceptionSign,
    "absent": AbsentSign,
    "together": TogetherSign,
}
