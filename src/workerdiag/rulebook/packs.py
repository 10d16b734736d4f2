"""
Installed packs of rules: code and files of others, of which nothing ends or holds up a diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from attrs import frozen

from workerdiag.deadline import Deadline, ForeignError, call_in_time
from workerdiag.errors import describe_error, error_text
from workerdiag.model.rules import Rulebook

#: Entry points of this group name a pack: a Python package with rules in it, the path of a folder, or a
#: callable that returns one of these.
ENTRY_POINT_GROUP = "workerdiag.knowledge"
_MAX_NAMED = 3
_MAX_CHARS = 200


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


def installed_packs(deadline: Deadline) -> Iterator[Pack]:
    """
    The installed packs by name, each with what is left out of it, all before *deadline*.
    """
    try:
        points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: each.name)
    except Exception as problem:  # noqa: BLE001  what other packages noted down of themselves may be broken
        yield Pack(name="", notes=(f"no pack can be found: {describe_error(problem)}",))
        return
    for point in points:
        try:
            yield call_in_time("workerdiag-pack", partial(_read_pack, point), deadline)
        except TimeoutError:
            note = f"pack {point.name} is left out: loading it takes too long"
            yield Pack(name=point.name, notes=(note,), is_late=True)
        except (ForeignError, RuntimeError) as problem:
            note = f"pack {point.name} is left out: {error_text(problem)}"[:500]
            yield Pack(name=point.name, notes=(note,))


def _folder_of(found: object) -> Path:
    """
    The folder of a pack: of a Python package its own, else the path that was given.
    """
    return Path(next(iter(found.__path__))) if isinstance(found, ModuleType) else Path(str(found))


def _read_pack(point: EntryPoint) -> Pack:
    from workerdiag.rulebook.folder import read_lenient  # imports cattrs

    found = point.load()
    book, problems = read_lenient(_folder_of(found() if callable(found) else found))
    problem_text = "; ".join(each[:_MAX_CHARS] for each in problems[:_MAX_NAMED])
    problem_text += f"; and {len(problems) - _MAX_NAMED} more" if len(problems) > _MAX_NAMED else ""
    if not (book.causes or book.landmarks):
        return Pack(
            name=point.name, notes=(f"pack {point.name} is left out: {problem_text or 'it is empty'}",)
        )
    notes = (f"of pack {point.name} is left out: {problem_text}",) if problems else ()
    return Pack(name=point.name, book=book, notes=notes)
