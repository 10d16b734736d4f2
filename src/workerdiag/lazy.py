"""Imports at first use: names of a package (PEP 562), modules that can be called, and much at once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


def lazy_names(
    package: str, namespace: dict[str, object], module_of: Mapping[str, str], public: Iterable[str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package.

    *namespace* is its ``globals()``, which keep what was imported once; *module_of* maps a name to its
    module; *public* is its ``__all__``.
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


def call_module(name: str, module: str, function: str) -> None:
    """Let the module *name* be called as a *function* of another *module*.

    A public function with the name of a module is that module, called, whether or not it was imported before.
    """

    class CallableModule(ModuleType):
        @property
        def __wrapped__(self) -> Callable[..., object]:
            """The function, whose arguments notebooks and editors show."""
            found: Callable[..., object] = getattr(import_module(module), function)
            return found

        def __call__(self, *arguments: object, **options: object) -> object:
            return self.__wrapped__(*arguments, **options)

    called = sys.modules[name]
    called.__class__ = CallableModule
    vars(called).setdefault(function, called)  # where `lazy_names` looks for it


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while the block loads what stays, and spare it a first look at that.

    It would look at all objects of the program, which takes a quarter as long as the loading.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # into the oldest generation, without a look
        gc.enable()
