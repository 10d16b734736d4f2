"""The decorator of value classes."""

from __future__ import annotations

import attrs

from workerdiag.model.evidence import LogChunk
from workerdiag.values import frozen


def test_a_value_is_shown_as_attrs_shows_it():
    """``repr`` names the class and each field, those of the base first, but for fields that are not shown."""

    def classes(decorator):
        @decorator
        class Base:
            x: int

        @decorator(kw_only=True)
        class Whole(Base):
            name: str = ""
            secret: str = attrs.field(default="s", repr=False)
            data: bytes = attrs.field(default=b"ab", repr=lambda data: f"<{len(data)} bytes>")

        return Whole

    assert repr(classes(frozen)(x=1, name="a")) == repr(classes(attrs.frozen)(x=1, name="a"))


def test_a_class_keeps_its_own_repr():
    """What a class says itself stays."""

    @frozen
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("a")) == "a"
    assert "<3 bytes>" in repr(LogChunk(origin="a", data=b"abc"))


def test_values_are_equal_and_hashed_as_attrs_has_it():
    """By the fields of the same class, without those that do not count."""

    def classes(decorator):
        @decorator
        class Point:
            x: int
            note: str = attrs.field(default="", eq=False)
            parts: dict = attrs.field(factory=dict, hash=False)

        @decorator
        class Further(Point):
            pass

        @decorator
        class Empty:
            pass

        @decorator(eq=False)
        class Thing:
            x: int = 0

        return Point, Further, Empty, Thing

    def answers(point, further, empty, thing):
        here = point(1)
        return [
            here == point(1, note="n"),
            here == point(2),
            here == further(1),
            here != point(1, parts={"a": 1}),
            hash(here) == hash(point(1, "n", {"a": 1})),
            hash(here) == hash(point(2)),
            empty() == empty(),
            len({empty(), empty()}),
            thing() == thing(),
            len({thing(), thing()}),
        ]

    assert answers(*classes(frozen)) == answers(*classes(attrs.frozen))


def test_a_class_keeps_its_own_equality():
    """What a class compares itself stays."""

    @frozen
    class Folded:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Folded) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

    assert len({Folded("a"), Folded("A")}) == 1
