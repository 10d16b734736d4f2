"""
Puts what we know into the wheel: ``knowledge/`` as it is, and compiled beside it.

Reading TOML and checking it costs 100 ms and cattrs; the compiled JSON loads in a few.
An editable install gets neither: it reads the folder of the checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036  older ones come here before pip reads requires-python
    raise SystemExit("workerdiag needs Python 3.11 or newer; this is " + sys.version.split()[0])

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KnowledgeBuildHook(BuildHookInterface[Any]):
    """
    Adds ``workerdiag/knowledge/`` and ``workerdiag/knowledge.json`` to a wheel.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """
        Compile the rules; a rule with a mistake fails the build with all mistakes listed.
        """
        if version == "editable":
            return
        root = Path(self.root)
        self._scratch = TemporaryDirectory(prefix="workerdiag-build-")
        compiled = Path(self._scratch.name, "knowledge.json")
        compiled.write_text(compiled_knowledge(root), encoding="utf-8")
        build_data["force_include"][str(root / "knowledge")] = "workerdiag/knowledge"
        build_data["force_include"][str(compiled)] = "workerdiag/knowledge.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """
        Leave nothing behind.
        """
        if version != "editable":
            self._scratch.cleanup()


def compiled_knowledge(root: Path) -> str:
    """
    The JSON text of *root*'s ``knowledge/``, made by the code of that same checkout.
    """
    with _importable(root / "src"):
        from workerdiag.matching.scan.literals import literals
        from workerdiag.rulebook.compiled import compile_rulebook, patterns
        from workerdiag.rulebook.folder import read_folder

        book = read_folder(root / "knowledge")
        return compile_rulebook(book, {each: literals(each) for each in patterns(book)})


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """
    Modules of *folder* can be imported, and leave no bytecode in it.
    """
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = bytecode
