"""A natural program, what a right answer to it is, and how an answer is judged."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Literal

from attrs import frozen

from .natural_stage import Asked, Stage

#: ``partly``: true, but without what decides. ``unknown``: it says that it does not know. ``WRONG``: it names
#: something else at 50 % or more. ``wrong all-clear``: it says that nothing is wrong.
Mark = Literal["right", "partly", "unknown", "WRONG", "wrong all-clear"]

#: From this probability a reader takes a cause for the answer.
CLAIMED = 0.5
#: From this probability he also remembers a second one.
NOTICED = 0.25
#: Answers to an exception that the program itself raised. ``separate`` is not an outcome: it means that the
#: deaths are said to be a separate matter.
OWN_ERROR = ("no-death", "separate")
#: What killed the worker before the program began; never the answer unless a scenario says so.
EARLIER = "nanny.memory-terminate"


@frozen(kw_only=True)
class Answer:
    """What was said about one run, as far as it is judged."""

    outcome: str
    #: Id of each cause with its probability, likeliest first.
    causes: tuple[tuple[str, float], ...] = ()
    deaths_are_separate: bool = False
    #: The task that is to blame; empty if none is named.
    blamed: str = ""
    #: What ``print(diagnosis)`` shows.
    text: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The id of the likeliest cause, or the outcome without one."""
        if self.outcome == "explained" and self.causes:
            return self.causes[0][0]
        return "separate" if self.deaths_are_separate else self.outcome

    @property
    def probability(self) -> float | None:
        """The probability of the likeliest cause, if one is named."""
        return self.causes[0][1] if self.outcome == "explained" and self.causes else None

    def claims(self, least: float = CLAIMED) -> set[str]:
        """Return the causes with at least this probability."""
        return {name for name, probability in self.causes if probability >= least}


@frozen(kw_only=True)
class Scenario:
    """One program that fails, or stands still, for a natural reason."""

    name: str
    #: Runs until there is something to ask about.
    program: Callable[[Stage], Asked]
    #: Right answers: ids of causes (patterns as of file names), outcomes, or ``separate``.
    right: tuple[str, ...]
    #: Answers that are true, but without what decides.
    partly: tuple[str, ...] = ()
    #: What the printed report must show, as regular expressions; otherwise it is partly right at most.
    says: tuple[str, ...] = ()
    #: The key of the task that is to blame, as a regular expression; otherwise it is partly right at most.
    blames: str = ""
    #: What it must not show; otherwise it is partly right at most.
    never_says: tuple[str, ...] = ()
    #: Causes that must not even be noticed.
    never: tuple[str, ...] = ()
    #: Libraries without which the program does not run.
    needs: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """What happens, in one line."""
        return (self.program.__doc__ or "").strip()


#: Every scenario by its name.
SCENARIOS: dict[str, Scenario] = {}


def natural(
    *right: str,
    partly: tuple[str, ...] = (),
    says: tuple[str, ...] = (),
    blames: str = "",
    never_says: tuple[str, ...] = (),
    never: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[Stage], Asked]], Callable[[Stage], Asked]]:
    """Register a program under its name with dashes; the arguments are those of `Scenario`."""

    def register(program: Callable[[Stage], Asked]) -> Callable[[Stage], Asked]:
        name = program.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(
            name=name,
            program=program,
            right=right,
            partly=partly,
            says=says,
            blames=blames,
            never_says=never_says,
            never=never,
            needs=needs,
        )
        return program

    return register


def judge(scenario: Scenario, answer: Answer) -> Mark:
    """Return how good an answer is."""
    accepted = (*scenario.right, *scenario.partly)
    never = [each for each in (*scenario.never, EARLIER) if not _fits(each, accepted)]
    if any(not _fits(each, accepted) for each in answer.claims()):
        return "WRONG"
    if any(_fits(each, never) for each in answer.claims(NOTICED)):
        return "WRONG"
    says_all = all(re.search(each, answer.text, re.IGNORECASE) for each in scenario.says)
    says_none = not any(re.search(each, answer.text, re.IGNORECASE) for each in scenario.never_says)
    if _fits(answer.name, scenario.right):
        is_fair = bool(re.search(scenario.blames, answer.blamed))
        return "right" if says_all and says_none and is_fair else "partly"
    if _fits(answer.name, scenario.partly):
        return "partly"
    if answer.outcome == "no-death":
        return "wrong all-clear"
    return "partly" if scenario.says and says_all and says_none else "unknown"


def _fits(name: str, patterns: tuple[str, ...] | list[str]) -> bool:
    return any(fnmatch(name, each) for each in patterns)
