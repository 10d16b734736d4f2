"""Value classes as attrs makes them; ``frozen`` has one ``__repr__``, ``__eq__`` and ``__hash__`` for all of them.

attrs compiles its own for each class, which takes a seventh of the time of a first answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define, evolve, field

__all__ = ["define", "evolve", "field", "frozen"]

if TYPE_CHECKING:
    from attrs import frozen  # by this name type checkers know it
else:

    def frozen(cls: type | None = None, *, eq: bool = True, **options: Any) -> Any:
        """``attrs.frozen``, with its arguments. What a class defines itself stays."""
        if cls is None:
            return partial(frozen, eq=eq, **options)
        for method in (_repr, _eq, _hash) if eq else (_repr,):
            name = f"_{method.__name__}__"
            if name not in vars(cls):
                setattr(cls, name, method)
        return attrs.frozen(cls, eq=None if eq else False, **options)

    def _repr(self: Any) -> str:
        """As attrs writes it."""
        shown = ((each.name, each.repr, getattr(self, each.name)) for each in attrs.fields(type(self)) if each.repr)
        parts = (f"{name}={repr(value) if how is True else how(value)}" for name, how, value in shown)
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(parts)})"

    def _eq(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        compared = _compared(self.__class__)
        return compared(self) == compared(other)

    def _hash(self: Any) -> int:
        return hash(_compared(self.__class__, "hash")(self))

    @cache
    def _compared(cls: type, by: str = "eq") -> Callable[[object], object]:
        """What takes the values from an object that count; of a field without a word on its hash, by equality."""
        counts = ((each.name, getattr(each, by), each.eq) for each in attrs.fields(cls))
        names = [name for name, own, eq in counts if (eq if own is None else own)]
        return attrgetter(*names) if names else lambda _: ()
