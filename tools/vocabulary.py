"""All that one release of distributed can say: messages, events, classes, exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from attrs import define, field
from events import SourceEvent, events_of_source
from templates import Template, modules_of_wheel, templates_of_source

Utterance = Template | SourceEvent


@define(eq=False, slots=False)
class Vocabulary:
    """What a release can say, or several releases together. Utterances are ``in`` it."""

    templates: frozenset[Template] = field(default=frozenset(), repr=False)
    events: frozenset[SourceEvent] = field(default=frozenset(), repr=False)

    def __contains__(self, utterance: object) -> bool:
        return utterance in self.templates or utterance in self.events

    @cached_property
    def lowered(self) -> dict[Template, str]:
        """Every template, in a fixed order, with its lower-case text."""
        return {each: "\0".join(each).lower() for each in sorted(self.templates)}


def merge_vocabularies(vocabularies: Iterable[Vocabulary]) -> Vocabulary:
    """What at least one of them says."""
    each = list(vocabularies)
    return Vocabulary(
        templates=frozenset[Template]().union(*(one.templates for one in each)),
        events=frozenset[SourceEvent]().union(*(one.events for one in each)),
    )


def vocabulary_of_source(source: str) -> Vocabulary:
    """What one module can say."""
    return Vocabulary(templates=templates_of_source(source), events=events_of_source(source))


def vocabulary_of_wheel(wheel: Path) -> Vocabulary:
    """What the modules in *wheel* can say, and their paths as they stand in tracebacks."""
    modules = list(modules_of_wheel(wheel))
    paths = Vocabulary(templates=frozenset((path,) for path, _ in modules))
    return merge_vocabularies((paths, *(vocabulary_of_source(source) for _, source in modules)))
