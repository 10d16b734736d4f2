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
