"""Puts what we know into the wheel: ``knowledge/`` as it is, and compiled beside it. The README describes it.

Reading TOML and checking it costs 100 ms and cattrs; the compiled rules load in a few.
An editable install gets neither: it reads the folder of the checkout.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036  older ones come here before pip reads requires-python
    raise SystemExit("workerdiag needs Python 3.11 or newer; this is " + sys.version.split()[0])

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link to a file of the checkout: of no use where the text is shown on a package index.
_LOCAL_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")
_WHERE_PAGES_ARE = (
    "The pages and examples that this text names are in `docs/` and `examples/` of the source distribution.\n"
)


class DescriptionHook(MetadataHookInterface):
    """Describes the package by its README, without links that lead nowhere."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text of the README."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = _LOCAL_LINK.sub(r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": f"{text}\n{_WHERE_PAGES_ARE}"}


class KnowledgeBuildHook(BuildHookInterface[Any]):
    """Adds ``workerdiag/knowledge/`` and ``workerdiag/knowledge.pickle`` to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the rules; a rule with a mistake fails the build with all mistakes listed."""
        if version == "editable":
            return
        root = Path(self.root)
        self._scratch = TemporaryDirectory(prefix="workerdiag-build-")
        compiled = Path(self._scratch.name, "knowledge.pickle")
        compiled.write_bytes(compiled_knowledge(root))
        build_data["force_include"][str(root / "knowledge")] = "workerdiag/knowledge"
        build_data["force_include"][str(compiled)] = "workerdiag/knowledge.pickle"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Leave nothing behind."""
        if version != "editable":
            self._scratch.cleanup()


def compiled_knowledge(root: Path) -> bytes:
    """The rules of *root*'s ``knowledge/``, made by the code of that same checkout."""
    with _importable(root / "src"):
        from workerdiag.matching.literals import literals
        from workerdiag.matching.patterns import compilable_patterns
        from workerdiag.rulebook.load import compile_rulebook, patterns
        from workerdiag.rulebook.toml_folder import read_folder

        book = read_folder(root / "knowledge")
        literals_of = {each: literals(each) for each in patterns(book)}
        return compile_rulebook(book, compilable_patterns(book) | literals_of)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules of *folder* can be imported, and leave no bytecode in it."""
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = bytecode
