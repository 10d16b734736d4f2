"""
What is known about the ways a worker dies: causes, their signs, and the landmarks of a log.

Pure data. ``workerdiag.rulebook`` makes these objects from ``knowledge/``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import field, frozen
from attrs.validators import ge, in_, matches_re

from workerdiag.model.mitigation import Mitigation

#: How much one sign speaks for a cause: the likelihood ratio of each grade, that is how
#: many times likelier the sign is when the cause is real than when it is not.
#: Judgements, each checked: docs/calibration.md has the ratio that was measured on labelled
#: incidents, with its interval, and docs/what-the-numbers-mean.md says where they differ and why.
GRADES: Mapping[str, float] = {
    "decisive": 10000.0,  # the producer says so in as many words
    "strong": 4000.0,  # hardly ever seen otherwise
    "moderate": 700.0,  # the usual reading, with rivals
    "weak": 15.0,  # fits, and fits others as well
    "hint": 3.0,  # by itself nothing
}

#: Ends that every run comes to: a script that is done stops its workers, and connections close.
EVERYDAY_ENDS = ("stopped", "disconnected")
#: The ratio for causes of everyday ends, where a sign stands alone and nothing tells that a process ended:
#: an orderly shutdown leaves the same message.
LONE_GRADES: Mapping[str, float] = {"moderate": 250.0}

#: Odds of a cause against "unknown" before anything is seen.
FREQUENCIES: Mapping[str, float] = {"common": 0.04, "usual": 0.02, "rare": 0.01}

CAUSE_ENDS = ("stopped", "raised", "killed", "crashed", "never-started", "standstill", "disconnected")
VERDICTS = (
    "task",
    "other-task",
    "configuration",
    "environment",
    "platform",
    "operator",
    "nobody",
    "unknown",
)
RETRY_VERDICTS = ("safe", "unsafe", "unknown")
RULE_STATUSES = ("experimental", "stable", "deprecated")
#: What a landmark marks: ``death`` a process ended, ``ended`` it closed itself unasked, ``closed``
#: it closed and nobody says why,
#: ``stop`` somebody asked it to stop, ``removal`` the scheduler let go of it, ``goodbye`` it
#: took leave of the scheduler, ``vanished`` a connection ended without that, ``restart`` the
#: nanny starts another one, ``start`` a process is up, ``pause`` and ``resume`` it takes no new
#: work and does again, ``blame`` Dask gives up on a task, ``trouble`` something is wrong,
#: ``task-error`` a task failed, ``disconnect`` a connection or a peer was lost, as also happens when all
#: close in order, ``blocked`` an event loop did not run for some seconds, ``error`` a message that its
#: writer calls an error, ``failure`` something failed that kills no worker, ``harmless`` what only looks
#: like trouble, ``leave`` a worker's command ended in order, ``deployment`` how the cluster was
#: brought up, ``note`` what is said by the way, for signs to refer to.
LANDMARK_ROLES = (
    "death",
    "ended",
    "closed",
    "stop",
    "removal",
    "goodbye",
    "vanished",
    "restart",
    "start",
    "pause",
    "resume",
    "blame",
    "trouble",
    "task-error",
    "disconnect",
    "blocked",
    "error",
    "failure",
    "harmless",
    "leave",
    "deployment",
    "note",
)

_name = matches_re(r"[a-z0-9]+(-[a-z0-9]+)*")
_grade = in_(tuple(GRADES))


@frozen(kw_only=True)
class LogSign:
    """
    A message in a log. The pattern is RE2, searched in one whole message, case-insensitive.
    """

    name: str = field(validator=_name)
    pattern: str
    grade: str = field(validator=_grade)
    #: A message that also matches this is not the sign (RE2 has no look-around).
    unless: str | None = None
    #: Streams the message must be from; empty: any.
    streams: tuple[str, ...] = ()
    #: Signs of one event share it and count once, the strongest of them. Default: the name.
    event: str = ""
    #: Whether it is the sign only of a ``worker``, captured, that had not registered before in the same log.
    of_strangers: bool = False
    #: Releases of distributed in which it is worded so: first one with it, first one without.
    introduced: str = ""
    removed: str = ""
    #: Whole log lines that show the sign, and lines that look alike and do not.
    seen: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()


@frozen(kw_only=True)
class LandmarkSign:
    """
    A landmark (``knowledge/landmarks``) whose captures fit, e.g. a stop for a given reason.
    """

    name: str = field(validator=_name)
    landmark: str
    grade: str = field(validator=_grade)
    #: Capture name to RE2 pattern, which must match the whole captured text.
    where: Mapping[str, str] = field(factory=dict, hash=False)
    event: str = ""
    #: Releases of distributed that show it so, where they are not all that the landmark is for.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class ExitSign:
    """
    The exit of the dead process, whoever reported it.
    """

    name: str = field(validator=_name)
    grade: str = field(validator=_grade)
    signals: tuple[int, ...] = ()
    statuses: tuple[int, ...] = ()
    #: Any exit status that is not listed elsewhere and is not zero.
    any_failure: bool = False
    event: str = ""


@frozen(kw_only=True)
class EventSign:
    """
    An event of the scheduler, the platform or the operating system.
    """

    name: str = field(validator=_name)
    #: RE2, must match the whole topic; ``worker`` stands for any worker's address.
    topic: str
    grade: str = field(validator=_grade)
    #: Field to RE2 pattern, which must match the whole value.
    where: Mapping[str, str] = field(factory=dict, hash=False)
    #: Field to the least number that counts.
    at_least: Mapping[str, float] = field(factory=dict, hash=False)
    event: str = ""
    #: Releases of distributed that show it: first one that does, first one that does not.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class ExceptionSign:
    """
    The exception that the caller caught, or one it carries.
    """

    name: str = field(validator=_name)
    grade: str = field(validator=_grade)
    #: Names of types, with or without module.
    types: tuple[str, ...] = ()
    #: RE2, searched in the text.
    pattern: str | None = None
    #: True: only raised in a task; False: only not; None: either.
    from_task: bool | None = None
    event: str = ""
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
    grade: str = field(validator=_grade)
    #: The place that must have been looked at: ``nanny log``, ``scheduler events``, ...
    inspected: str
    event: str = ""


@frozen(kw_only=True)
class TogetherSign:
    """
    Several signs or landmarks close together, which say more than each of them alone.
    """

    name: str = field(validator=_name)
    #: Names of signs of the same cause, or ids of landmarks; one named twice must be there twice.
    signs: tuple[str, ...]
    grade: str = field(validator=_grade)
    #: How far apart in one log, at most; 0: anywhere, also in different logs.
    within_lines: int = field(default=200, validator=ge(0))
    #: Whether they must come in the order given.
    in_order: bool = False
    event: str = ""


Sign = LogSign | LandmarkSign | ExitSign | EventSign | ExceptionSign | AbsentSign | TogetherSign


@frozen(kw_only=True)
class LookAlike:
    """
    A cause that shows similarly, and what tells the two apart.
    """

    cause: str
    tell: str


@frozen(kw_only=True)
class NextLook:
    """
    A place to look that would settle whether it was this cause.
    """

    look: str
    command: str = ""
    permission: str = ""
    #: Until when it can still be done.
    until: str = ""


@frozen(kw_only=True)
class Cause:
    """
    One way for a worker to die, to never start, or to stand still.
    """

    id: str = field(validator=matches_re(r"[a-z0-9-]+\.[a-z0-9-]+"))
    revision: int = field(validator=ge(1))
    title: str
    #: What happens, and why, for a data scientist.
    why: str
    #: How it ends the worker; ``stopped`` is a deliberate stop, ``standstill`` kills nobody.
    ends: str = field(validator=in_(CAUSE_ENDS))
    blame: str = field(validator=in_(VERDICTS))
    retry: str = field(validator=in_(RETRY_VERDICTS))
    retry_advice: str = ""
    frequency: str = field(default="usual", validator=in_(tuple(FREQUENCIES)))
    status: str = field(default="stable", validator=in_(RULE_STATUSES))
    #: Why it is deprecated, and what to use instead.
    deprecated_because: str = ""
    successor: str = ""
    #: Oldest engine that understands this rule.
    engine: str = "0.1"
    #: Whether it is this cause also when all that happened is that a task failed.
    in_tasks: bool = False
    #: Causes whose signs are consequences of this one, where this one is shown.
    explains: tuple[str, ...] = ()
    look_alikes: tuple[LookAlike, ...] = ()
    signs: tuple[Sign, ...] = ()
    against: tuple[Sign, ...] = ()
    mitigations: tuple[Mitigation, ...] = ()
    settled_by: tuple[NextLook, ...] = ()
    references: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """
        The part of the id before the dot.
        """
        return self.id.partition(".")[0]


@frozen(kw_only=True)
class Landmark:
    """
    A message that marks a point in a worker's life, with who and how captured from it.

    Captures with these names mean the same everywhere: ``pid``, ``worker``, ``nanny``,
    ``name``, ``host``, ``container``, ``signal``, ``status``, ``reason``, ``stimulus``, ``task``.
    """

    id: str = field(validator=matches_re(r"[a-z0-9-]+\.[a-z0-9-]+"))
    revision: int = field(default=1, validator=ge(1))
    role: str = field(validator=in_(LANDMARK_ROLES))
    pattern: str
    #: Whether the pattern is searched in ``logger - LEVEL - message`` and not in the message alone.
    in_header: bool = False
    unless: str | None = None
    streams: tuple[str, ...] = ()
    #: Exit of the process that the message implies when it captures none.
    signal: int | None = None
    status: int | None = None
    introduced: str = ""
    removed: str = ""
    seen: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()


@frozen(kw_only=True)
class Rulebook:
    """
    All that is known, of one release.
    """

    #: Shape of the files, and the release that reports quote.
    schema: int
    release: str
    causes: tuple[Cause, ...]
    landmarks: tuple[Landmark, ...]
    #: Advice for where no cause is known, but Dask gave up on a task or workers were lost.
    advice: tuple[Mitigation, ...] = ()
    #: The same for where nothing died and a task failed.
    task_advice: tuple[Mitigation, ...] = ()
    #: What was left out or overridden, and why (packs that are newer than this engine ...).
    notes: tuple[str, ...] = ()
    #: The literals that every message matching a pattern must contain, where known ahead.
    literals: Mapping[str, tuple[str, ...]] = field(factory=dict, hash=False, eq=False, repr=False)

    def cause(self, cause_id: str) -> Cause | None:
        """
        The cause of that id, or None.
        """
        return next((each for each in self.causes if each.id == cause_id), None)

    def log_rules(self) -> Iterator[tuple[str, str, LogSign | Landmark]]:
        """
        All rules with a pattern for log text, each with its owner's id and its name there.
        """
        for landmark in self.landmarks:
            yield landmark.id, "", landmark
        for cause in self.causes:
            for sign in (*cause.signs, *cause.against):
                if isinstance(sign, LogSign):
                    yield cause.id, sign.name, sign
