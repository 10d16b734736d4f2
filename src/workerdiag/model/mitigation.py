"""
What to change about a cause, and what its text may quote of the death at hand.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from workerdiag.model.vocabulary import Deployment

#: What mitigations may quote of a death in braces: its memory, ...
MEMORY_PLACEHOLDERS = ("rss", "limit", "more_than", "needs_memory", "growth", "percent")
#: ... where it crashed, if a pattern of the cause captures faulthandler's frames under this name, ...
STACK_CAPTURE = "stack"
CRASH_PLACEHOLDERS = ("frame", "package")
#: ... what is known of the cluster and of a task that was given up, ...
CLUSTER_PLACEHOLDERS = ("dashboard", "cluster", "gave_up", "losses", "allowed_failures")
#: ... and captures of these names in the cause's own patterns.
CAPTURE_PLACEHOLDERS = ("module", "task", "seconds", "path", "port", "address")


@frozen(kw_only=True)
class Mitigation:
    """
    Something to change. Text may use ``{numbers}`` computed from the death at hand.
    """

    #: When it applies; empty: always.
    when: str = ""
    do: str
    #: The same as a place to look at ("the log of ..."), for where no cause is known.
    inspect: str = ""
    #: What it costs.
    cost: str = ""
    #: Configuration or command, as it would be typed.
    example: str = ""
    #: Numbers that the text uses; where one is unknown the mitigation is worded without.
    uses: tuple[str, ...] = ()
    #: Numbers that make it superfluous: where one of them is known it is left out.
    superseded_by: tuple[str, ...] = ()
    #: Signs of this cause that it is for: where none of them shows it is left out; empty: always for it.
    signs: tuple[str, ...] = ()
    #: Words without which it makes no sense: where one of them is not known it is left out.
    requires: tuple[str, ...] = ()
    #: Deployments it is for; empty: all of them.
    deployments: tuple[Deployment, ...] = ()
    #: Deployment to what is typed there instead of `example`.
    examples: Mapping[Deployment, str] = field(factory=dict, hash=False)
    #: Name of the file under ``knowledge/shared`` that it is from; empty: of the cause itself.
    advice: str = ""
