"""Finds what a call computed: the Dask collections and futures in its frames, with the caller's names for them.

The frames are those of an exception's traceback, or of a thread that still waits. Nothing found is kept.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from traceback import walk_stack
from types import FrameType, FunctionType
from typing import Any, Literal

from workerdiag.guard import guarded
from workerdiag.model.user_code import is_library, local_variables
from workerdiag.sources.internals import (
    array_variables,
    expression_part,
    frames_of_threads,
    parts_of,
    variable_data,
)
from workerdiag.sources.tracebacks import place_of
from workerdiag.values import evolve, field, frozen

CollectionKind = Literal["array", "dataframe", "bag", "delayed"]
#: How the module of a collection's class begins. A foreign class with a ``dask`` attribute is none of them.
_KINDS: Mapping[str, CollectionKind] = {
    "dask.array": "array",
    "dask.dataframe": "dataframe",
    "dask.bag": "bag",
    "dask.delayed": "delayed",
}
_COMPUTES = {
    "dask/base.py": ("compute", "persist"),
    "distributed/client.py": ("compute", "persist", "gather", "result", "wait", "__next__"),
}
#: At most this many names of a frame, and members of one value.
_MAX_NAMES, _MAX_MEMBERS = 2000, 200
_MAX_LINE_CHARS, _MAX_ASSIGNMENT_LINES = 300, 12


@frozen(kw_only=True)
class Assignment:
    """Where the caller gave a value its name."""

    #: The name, e.g. ``x``.
    name: str
    #: The statement, e.g. ``x = da.ones(10, chunks=5)``.
    code: str = ""


@frozen(kw_only=True)
class Computed:
    """What one call computed. It refers to the caller's objects, so it is not to be kept."""

    collections: tuple[tuple[CollectionKind, Any], ...] = ()
    #: Keys of the futures that it waited for.
    keys: tuple[str, ...] = ()
    #: The caller's functions, by their names.
    functions: Mapping[str, FunctionType] = field(factory=dict, hash=False)
    #: Whether results come to the caller (``compute``), rather than stay on workers (``persist``).
    is_gathered: bool = True
    #: ``function (file:line)`` of the call, and that line.
    place: str = ""
    code: str = ""
    #: The caller's names, by the token of a collection: the name of an array, the name of an expression.
    names: Mapping[str, Assignment] = field(factory=dict)
    #: The names of dimensions, by the name of an array, as xarray has them.
    dims: Mapping[str, tuple[str, ...]] = field(factory=dict)


def waiting_frames(client: object) -> Iterator[list[tuple[FrameType, int]]]:
    """The frames of each thread of this process that computes or waits, outermost first."""
    for frame in frames_of_threads():
        found = list(walk_stack(frame))
        if any(_is_compute(each) and _belongs_to(each, client) for each, _ in found):
            yield found[::-1]


def _belongs_to(frame: FrameType, client: object) -> bool:
    owner = dict(local_variables(frame)).get("self")
    owner = getattr(owner, "client", owner)
    return type(owner).__name__ != "Client" or owner is client


def _is_compute(frame: FrameType) -> bool:
    path = "/".join(frame.f_code.co_filename.replace("\\", "/").rsplit("/", 2)[-2:])
    return frame.f_code.co_name in _COMPUTES.get(path, ())


def find_computed(frames: Iterable[tuple[FrameType, int]]) -> Computed | None:
    """What the innermost call in *frames* computed; None if they compute nothing."""
    walked = list(frames)
    computing = [frame for frame, _ in walked if _is_compute(frame)]
    if not computing:
        return None
    first = next(at for at, (frame, _) in enumerate(walked) if frame is computing[0])
    values: list[object] = []
    for frame in computing:
        held = dict(local_variables(frame))
        of_frame = [held.get(name) for name in ("collections", "args", "self", "futures", "fs")]
        if type(iterated := held.get("self")).__name__ == "as_completed":
            of_frame.append([*getattr(iterated, "futures", ())])  # those that are not done
        values += islice(_members(of_frame), _MAX_MEMBERS)
    keys = dict.fromkeys(str(getattr(each, "key", "")) for each in values if type(each).__name__ == "Future")
    is_gathered = not any(each.f_code.co_name in ("persist", "wait") for each in computing)
    return evolve(_work_of(values, walked[:first]), keys=tuple(keys), is_gathered=is_gathered)


def given_work(value: object, frames: Iterable[tuple[FrameType, int]]) -> Computed:
    """Collections that are not computed yet: *value* itself, its members, the arrays of an object of xarray.

    *frames* are those of the caller, outermost first, for the names.
    """
    parts: list[object] = []
    for each in islice(_members([value]), _MAX_MEMBERS):
        is_xarray = str(type(each).__module__).startswith("xarray.")
        parts += map(variable_data, array_variables(each).values()) if is_xarray else [each]
    return _work_of(parts, frames)


def _work_of(found: Iterable[object], frames: Iterable[tuple[FrameType, int]]) -> Computed:
    """The collections among *found*, with what their caller, whose frames are among *frames*, calls them."""
    kinds = ((collection_kind(each), each) for each in found)
    of_dask = {id(each): (kind, each) for kind, each in kinds if kind is not None}
    own = [(frame, line) for frame, line in frames if not is_library(frame.f_code.co_filename)]
    names, dims = caller_names(own)
    place, code = (_place(*own[-1]), _code(*own[-1])) if own else ("", "")
    collections = tuple(islice(of_dask.values(), 20))
    values = (value for frame, _ in own for _, value in _values(frame))
    functions = {each.__name__: each for each in values if type(each) is FunctionType}
    return Computed(collections=collections, place=place, code=code, names=names, dims=dims, functions=functions)


def collection_kind(value: object) -> CollectionKind | None:
    """The kind of a Dask collection, by its class; None for any other value."""
    module = str(type(value).__module__)
    return next((kind for start, kind in _KINDS.items() if module.startswith(start)), None)


def _members(values: Iterable[object]) -> Iterator[object]:
    for each in values:
        if isinstance(each, dict):
            yield from _members(list(islice(each.values(), _MAX_MEMBERS)))
        elif isinstance(each, list | tuple | set):
            yield from _members(list(islice(each, _MAX_MEMBERS)))
        elif each is not None:
            yield each


def caller_names(
    frames: Iterable[tuple[FrameType, int]],
) -> tuple[Mapping[str, Assignment], Mapping[str, tuple[str, ...]]]:
    """The caller's names for collections, by token, and the dimensions of arrays in xarray's objects."""
    names: dict[str, Assignment] = {}
    dims: dict[str, tuple[str, ...]] = {}
    for frame, line in frames:
        with guarded("reading the names of a frame"):  # values of any class
            for name, value in _values(frame):
                for token, value_dims in _tokens(value):
                    names[token] = _assignment(frame, line, name)
                    if value_dims:
                        dims[token] = value_dims
    return names, dims


def _values(frame: FrameType) -> Iterator[tuple[str, object]]:
    """The variables of a frame, and the globals that its function uses."""
    yield from islice(local_variables(frame), _MAX_NAMES)
    yield from ((key, frame.f_globals[key]) for key in set(frame.f_code.co_names) if key in frame.f_globals)


def open_loop_in(value: Any, depth: int) -> bool:
    """Whether a function of the user in a task, or one that it calls, has a ``while`` loop in its source."""
    if type(value) is FunctionType and not is_library(value.__code__.co_filename):
        with guarded("reading a function"):  # it may have no file, or be part of a statement
            tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
            if any(isinstance(each, ast.While) for each in ast.walk(tree)):
                return True
    return depth > 0 and any(open_loop_in(each, depth - 1) for each in parts_of(value))


def _tokens(value: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The token of a collection, with its dimensions; those of the arrays in an object of xarray."""
    kind = collection_kind(value)
    if kind == "array":
        yield str(getattr(value, "name", "")), ()
    elif kind == "dataframe":
        yield str(expression_part(getattr(value, "expr", None), "_name") or ""), ()
    elif str(type(value).__module__).startswith("xarray."):
        for each in islice(array_variables(value).values(), _MAX_MEMBERS):
            data = variable_data(each)
            if collection_kind(data) == "array":
                yield str(getattr(data, "name", "")), tuple(map(str, getattr(each, "dims", ())))


def _assignment(frame: FrameType, line: int, name: str) -> Assignment:
    """The last assignment to *name* in the function of *frame* before the statement at *line*, which still runs."""
    first = 1 if frame.f_code.co_name == "<module>" else frame.f_code.co_firstlineno
    first = max(first, line - 2000)
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[first - 1 :]
    for at in range(min(line - first, len(lines)) - 1, -1, -1):
        text = lines[at].lstrip()
        if (
            text.startswith(name)
            and text[len(name) :].lstrip().startswith("=")
            and "==" not in text.split("=", 1)[0]
        ):
            count, code = _statement(lines[at : at + _MAX_ASSIGNMENT_LINES])
            if first + at + count <= line:
                return Assignment(name=name, code=code)
    return Assignment(name=name)


def _statement(lines: list[str]) -> tuple[int, str]:
    """The first whole statement of *lines* and how many it takes; the first line if it does not end there."""
    for count in range(1, len(lines) + 1):
        text = textwrap.dedent("".join(lines[:count]))
        try:
            ast.parse(text)
        except SyntaxError:
            continue
        return count, " ".join(text.split())[:_MAX_LINE_CHARS]
    return 1, lines[0].strip()[:_MAX_LINE_CHARS]


def _place(frame: FrameType, line: int) -> str:
    return place_of(frame.f_code.co_name, frame.f_code.co_filename.replace("\\", "/"), line)


def _code(frame: FrameType, line: int) -> str:
    return linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()[:_MAX_LINE_CHARS]
