"""Value classes: ``frozen`` as attrs has it, with one ``__repr__`` for all of them.

attrs compiles a ``__repr__`` for each class, which takes a twelfth of the time of a first answer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attrs import frozen as frozen  # noqa: PLC0414  by this name type checkers know it
else:
    import attrs

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """``attrs.frozen``, with its arguments."""
        if cls is None:
            return partial(frozen, **options)
        if "__repr__" not in vars(cls):
            cls.__repr__ = _shown
        return attrs.frozen(cls, **options)

    def _shown(self: Any) -> str:
        """As attrs writes it."""
        shown = ((each.name, each.repr, getattr(self, each.name)) for each in attrs.fields(type(self)) if each.repr)
        parts = (f"{name}={repr(value) if how is True else how(value)}" for name, how, value in shown)
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(parts)})"
