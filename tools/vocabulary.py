"""
All that one release of distributed can say: messages, events, classes, exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from attrs import define, field
from events import Happening, happenings_of_source
from templates import Template, modules_of_wheel, templates_of_source

Utterance = Template | Happening


@define(eq=False, slots=False)
class Sayings:
    """
    What a release can say, or several releases together. Utterances are ``in`` it.
    """

    templates: frozenset[Template] = field(default=frozenset(), repr=False)
    happenings: frozenset[Happening] = field(default=frozenset(), repr=False)

    def __contains__(self, utterance: object) -> bool:
        return utterance in self.templates or utterance in self.happenings

    @cached_property
    def lowered(self) -> dict[Template, str]:
        """
        Every template, in a fixed order, with its lower-case text.
        """
        return {each: "\0".join(each).lower() for each in sorted(self.templates)}


def together(said: Iterable[Sayings]) -> Sayings:
    """
    What at least one of them says.
    """
    each = list(said)
    return Sayings(
        templates=frozenset[Template]().union(*(one.templates for one in each)),
        happenings=frozenset[Happening]().union(*(one.happenings for one in each)),
    )


def sayings_of_source(source: str) -> Sayings:
    """
    What one module can say.
    """
    return Sayings(templates=templates_of_source(source), happenings=happenings_of_source(source))


def sayings_of_wheel(wheel: Path) -> Sayings:
    """
    What the modules in *wheel* can say, and their paths as they stand in tracebacks.
    """
    modules = list(modules_of_wheel(wheel))
    paths = Sayings(templates=frozenset((path,) for path, _ in modules))
    return together((paths, *(sayings_of_source(source) for _, source in modules)))
