"""
Names of a package that are imported when they are first used (PEP 562).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def lazy_names(
    package: str, namespace: dict[str, object], module_of: Mapping[str, str], public: Iterable[str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """
    What a package has as ``__getattr__`` and ``__dir__``.

    Args:
        package: Its name.
        namespace: Its ``globals()``, which keep what was imported once.
        module_of: The module within it that has a name, by name.
        public: Its ``__all__``.
    """

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{module_of[name]}"), name)
        namespace[name] = value
        return value

    def listed() -> list[str]:
        return sorted({*namespace, *public})

    return get, listed
