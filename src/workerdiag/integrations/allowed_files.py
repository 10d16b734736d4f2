"""Files that a program may name: only those below folders that its user has allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from workerdiag.rendering.wording import clip
from workerdiag.values import frozen

#: Maximum number of files in one folder.
MAX_FILES: Final = 200


class NotAllowedError(Exception):
    """The path is outside of the allowed folders, or does not exist. The message is for whoever named it."""


@frozen
class AllowedFiles:
    """The files below some folders, not outside by a link; links in a named folder are skipped."""

    #: Resolved paths.
    roots: tuple[Path, ...]

    @classmethod
    def below(cls, folders: Iterable[str | Path]) -> AllowedFiles:
        """Return the files below these folders."""
        return cls(tuple(Path(each).resolve() for each in folders))

    def files(self, path: str) -> Sequence[Path]:
        """Return the file at a path below one of the folders, or the files in it; raises NotAllowedError."""
        if not self.roots:
            raise NotAllowedError("no folder is allowed: start with `workerdiag mcp --root DIR`")
        for root in self.roots:
            with suppress(OSError, ValueError, RuntimeError):  # too long, a null byte, a circle of links
                if files := self._files(root / path):
                    return files
        allowed = ", ".join(map(str, self.roots))
        raise NotAllowedError(f"there is no file {clip(repr(path), 200)} in the allowed folders: {allowed}")

    def _files(self, path: Path) -> Sequence[Path]:
        found = path.resolve()
        if not any(found.is_relative_to(root) for root in self.roots):
            return ()
        if found.is_dir():
            inside = (each for each in sorted(found.iterdir()) if each.is_file() and not each.is_symlink())
            return tuple(islice(inside, MAX_FILES))
        return (found,) if found.is_file() else ()
