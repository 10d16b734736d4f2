"""
Installed packs of rules: code and files of others, of which nothing ends or holds up a diagnosis.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from attrs import frozen

from workerdiag import foreign
from workerdiag.errors import said_by, worded
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.folder import read_usable

#: Entry points of this group name the folder of a pack: a path, or a callable that returns one.
GROUP = "workerdiag.knowledge"
_MOST_NAMED = 3
_MOST_CHARS = 200


@frozen(kw_only=True)
class Pack:
    """
    One pack, as far as it can be used.
    """

    name: str
    #: Its rules; None if there are none.
    book: Rulebook | None = None
    #: What was left out of it, a sentence each.
    notes: tuple[str, ...] = ()
    #: Whether it would perhaps be there with more time.
    is_late: bool = False


def installed(*, within_s: float) -> Iterator[Pack]:
    """
    The installed packs by name, each with what is left out of it, all within *within_s* seconds.
    """
    deadline = time.monotonic() + within_s
    try:
        points = sorted(entry_points(group=GROUP), key=lambda each: each.name)
    except Exception as problem:  # noqa: BLE001  what other packages noted down of themselves may be broken
        yield Pack(name="", notes=(f"no pack can be found: {worded(problem)}",))
        return
    for point in points:
        left_s = deadline - time.monotonic()
        try:
            yield foreign.told_by("workerdiag-pack", partial(_read, point), within_s=left_s)
        except TimeoutError:
            note = f"pack {point.name} is left out: loading it takes too long"
            yield Pack(name=point.name, notes=(note,), is_late=True)
        except (foreign.ForeignError, RuntimeError) as problem:
            note = f"pack {point.name} is left out: {said_by(problem)}"[:500]
            yield Pack(name=point.name, notes=(note,))


def _read(point: EntryPoint) -> Pack:
    found = point.load()
    book, problems = read_usable(Path(str(found() if callable(found) else found)))
    told = "; ".join(each[:_MOST_CHARS] for each in problems[:_MOST_NAMED])
    told += f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    if not (book.causes or book.landmarks):
        return Pack(name=point.name, notes=(f"pack {point.name} is left out: {told or 'it is empty'}",))
    notes = (f"of pack {point.name} is left out: {told}",) if problems else ()
    return Pack(name=point.name, book=book, notes=notes)
