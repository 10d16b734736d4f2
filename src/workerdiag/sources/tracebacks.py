"""Where an exception was raised: the frames of its traceback, the task, and its line."""

from __future__ import annotations

import linecache
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator
from itertools import chain, dropwhile, islice
from pathlib import Path
from traceback import StackSummary, walk_tb
from types import CodeType, FrameType, FunctionType, TracebackType

from workerdiag.errors import error_text, utf8_safe
from workerdiag.guard import guarded
from workerdiag.model.user_code import is_library, local_variables

#: Functions in which a worker or a local scheduler runs a task (2024.8.1 to 2026.8.0).
_TASK_RUNNERS = {
    "distributed/worker.py": {
        "_run_task",
        "_run_task_simple",
        "_run_task_async",
        "apply_function",
        "apply_function_simple",
        "apply_function_async",
        "apply_function_actor",
        "execute",
    },
    "dask/local.py": {"execute_task"},
    "dask/core.py": {"_execute_task"},
    "dask/_task_spec.py": {"__call__", "execute_graph", "_execute_subgraph"},
}
_CLIENT = "distributed/client.py"
#: Functions of the client that re-raise a task's exception, and that of ``Client.get_executor``.
_FETCHERS = {"result", "_result", "gather", "_gather"}
#: Functions of the client that re-raise the exception of a function outside tasks.
_RUNNERS = {"run", "_run", "run_on_scheduler", "_run_on_scheduler"}
#: Code that raises errors which other threads, processes or machines raised first.
_HAND_ON = ("concurrent/futures", "asyncio", "tornado", "joblib", "multiprocessing", "loky", "prefect", "anyio")
#: Errors of the caller's arguments, which client and serializer find before anything is sent.
_OF_ARGUMENTS = (LookupError, ValueError, TypeError, AttributeError, NameError, ArithmeticError, RecursionError)
#: Errors that a mistake in the caller's program raises. Others, as ``RuntimeError("3 parts failed")``, may sum up
#: what workers did.
_OF_MISTAKES = (
    *_OF_ARGUMENTS,
    ImportError,
    SyntaxError,
    AssertionError,
    NotImplementedError,
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_SERIALIZER = "distributed/protocol/"
_UNSERIALIZABLE = "Could not serialize object of type"
#: Words of an error that hands on what Dask said.
_OF_DASK = re.compile(r"\bKilledWorker|\bCommClosed|\bNanny|(?:tcp|tls|ucx|ws|wss|inproc)://")
#: What the scheduler says of a task that it refuses (scheduler.py, 2023.9.1 to 2026.8.0): no frame comes with it.
_REFUSED = re.compile(r"Task .{1,300} worth of input dependencies, but worker ")
_MAX_LINKED = 100
_MAX_NAMES = 10_000
#: Number of lines before and after the one that raised, and maximum characters of each, and of a class's name.
_NEIGHBOURS, _LINE_CHARS, _MAX_CHARS = 2, 200, 300


def printed_frames(raised_at: TracebackType | None) -> str:
    """Return the innermost frames as text; empty if they cannot be printed."""
    walked = deque(walk_tb(raised_at), maxlen=40)
    with guarded("printing a traceback"):  # frames that were rebuilt may lack anything
        if all(_is_source(frame.f_code.co_filename) for frame, _ in walked):
            frames = StackSummary.extract(iter(walked))
        else:
            codes = [(frame.f_code, line) for frame, line in walked]
            plain = [(code.co_filename, line, code.co_name, "") for code, line in codes]
            frames = StackSummary.from_list(plain)
        return "".join(frames.format())
    return ""


def _is_source(file: str) -> bool:
    """Whether the file is missing or a regular file of a source file's size."""
    if file in linecache.cache:
        return True
    try:
        found = Path(file).stat()
    except (OSError, ValueError):  # it does not exist here: ``<stdin>``, or a path of another machine
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size <= 4 * 2**20


def raised_in_task(exc: BaseException) -> bool:
    """Whether a task raised the exception and Dask transferred it here.

    A worker removes its own frames from a traceback before pickling it (``get_traceback`` in
    distributed/utils.py). So the signs are frames rebuilt by tblib, which begin at the task's function. If
    the task had no Python frame (``int("x")``) and none is left, the sign is that the client's ``result`` or
    ``gather`` raised an error that is not one of Dask's.
    It misses tasks of ``scheduler="threads"`` or ``"processes"`` if Dask shortens the traceback
    (``admin.traceback.shorten``), and removed tracebacks.
    """
    frames = _frames(exc.__traceback__)
    if any(frame.f_code.co_name in _TASK_RUNNERS.get(_short_path(frame), ()) for frame in frames):
        return True
    first_rebuilt = next((index for index, frame in enumerate(frames) if _is_rebuilt_frame(frame)), None)
    if first_rebuilt is not None:
        before = frames[first_rebuilt - 1] if first_rebuilt else None
        by_run = before is not None and _short_path(before) == _CLIENT and before.f_code.co_name in _RUNNERS
        # A handler failed, not a task.
        by_server = _short_path(frames[first_rebuilt]) == "distributed/core.py"
        return not by_run and not by_server
    if not frames:
        return isinstance(exc, MemoryError) and _REFUSED.match(error_text(exc)) is not None
    return _is_fetcher(frames[-1]) and not _is_client_error(exc)


def _is_client_error(exc: BaseException) -> bool:
    """Whether a client itself raises such errors: cancelled, timed out, killed, disconnected."""
    packages = ("distributed", "asyncio", "concurrent", "tornado")
    return isinstance(exc, TimeoutError) or not packages_of(exc).isdisjoint(packages)


def _is_fetcher(frame: FrameType) -> bool:
    path, function = _short_path(frame), frame.f_code.co_name
    by_executor = path == "distributed/cfexecutor.py" and function == "_cascade_future"
    return by_executor or (path == _CLIENT and function in _FETCHERS)


def raised_by_caller(exc: BaseException, text: str) -> bool:
    """Whether the caller's own process raised the exception, before or beside any task.

    Its frames are then the caller's own, those of libraries, and of Dask those that build a graph or pickle it:
    none that waits for an answer, none that a worker or a scheduler sent, and none of code that raises errors
    of others. *text* is its message. An exception without a frame outside libraries proves nothing.
    """
    if not isinstance(exc, _OF_MISTAKES) or _is_client_error(exc) or _OF_DASK.search(text):
        return False
    frames = _frames(exc.__traceback__)
    if any(_is_rebuilt_frame(frame) for frame in frames) or _linked_to_dask(exc):
        return False
    files = [_file_of(frame) for frame in frames]
    if all(map(is_library, files)):
        return False
    if text.lstrip("('\"").startswith(_UNSERIALIZABLE) and _SERIALIZER in files[-1]:
        return True  # pickled in this process, if only by the thread that sends it
    if any(f"/{each}/" in file for file in files for each in _HAND_ON):
        return False
    of_dask = [frame for frame in frames if _is_of_distributed(frame)]
    return all(map(_is_before_sending, of_dask)) and (not of_dask or isinstance(exc, _OF_ARGUMENTS))


def _frames(raised_at: TracebackType | None) -> list[FrameType]:
    return [frame for frame, _ in walk_tb(raised_at)]


def _is_before_sending(frame: FrameType) -> bool:
    if _SERIALIZER in _file_of(frame):
        return True
    return _short_path(frame) == _CLIENT and frame.f_code.co_name not in _FETCHERS | _RUNNERS | {"sync"}


def _linked_to_dask(exc: BaseException) -> bool:
    """Whether an exception of Dask, or one that was sent here, led to this one, even if it is suppressed."""
    linked = list(linked_exceptions(exc, with_suppressed=True))
    for each in linked:
        of_others = any(
            _is_rebuilt_frame(frame) or (_is_of_distributed(frame) and not _is_before_sending(frame))
            for frame in _frames(each.__traceback__)
        )
        if _is_client_error(each) or (each is not exc and of_others):
            return True
    return len(linked) == _MAX_LINKED  # the others are not known


def passed_dask(raised_at: TracebackType | None, *, from_task: bool) -> bool:
    """Whether an exception passed code of distributed other than what runs tasks and fetches results.

    For the own exception of a task, or of a function for ``run``, this is code that it called; for any other,
    the code that raised it.
    """
    frames = _frames(raised_at)
    rebuilt = next((at for at, frame in enumerate(frames) if _is_rebuilt_frame(frame)), None)
    if rebuilt and _short_path(frames[rebuilt - 1]) == _CLIENT and not from_task:
        frames = frames[rebuilt:]
    if from_task:
        called = dropwhile(lambda frame: not _is_of_distributed(frame), frames)
        frames = frames[rebuilt:] if rebuilt is not None else list(dropwhile(_is_of_distributed, called))
    return any(
        _is_of_distributed(frame) and frame.f_code.co_name not in _TASK_RUNNERS.get(_short_path(frame), ())
        for frame in frames
    )


def _is_of_distributed(frame: FrameType) -> bool:
    return "/distributed/" in _file_of(frame)


def _short_path(frame: FrameType) -> str:
    return "/".join(_file_of(frame).rsplit("/", 2)[-2:])


def _is_rebuilt_frame(frame: FrameType) -> bool:
    """Whether tblib rebuilt the frame: all its frames run the statement ``raise __traceback_maker``."""
    return "__traceback_maker" in frame.f_code.co_names


def task_line(raised_at: TracebackType | None) -> tuple[str, tuple[str, ...]]:
    """Return the innermost line of a task outside libraries, as ``function (file:line)``, and its neighbours.

    A transferred exception's task frames are the rebuilt ones, or else those after the client's own. Both
    results are empty without any.
    """
    walked = list(walk_tb(raised_at))
    rebuilt = (at for at, (frame, _) in enumerate(walked) if _is_rebuilt_frame(frame))
    client = ("distributed/client.py", "distributed/utils.py")
    of_client = (n for n in range(len(walked), 0, -1) if _file_of(walked[n - 1][0]).endswith(client))
    first = next(rebuilt, None) or next(of_client, len(walked))
    return _own_line(walked[first:])


def caller_line(raised_at: TracebackType | None) -> tuple[str, tuple[str, ...]]:
    """Return the innermost line of the caller's own code, as ``function (file:line)``, and its neighbours."""
    return _own_line([(frame, line) for frame, line in walk_tb(raised_at) if not _file_of(frame).endswith(".pyx")])


def called_actor(raised_at: TracebackType | None) -> tuple[str, str] | None:
    """The key of the only actor among the innermost variables that are actors, and its worker's address.

    An attribute that an actor lacks is a call to its worker, so none is looked up.
    """
    for frame in reversed(_frames(raised_at)):
        actors = [
            object.__getattribute__(value, "__dict__")
            for _, value in local_variables(frame)
            if (type(value).__module__, type(value).__name__) == ("distributed.actor", "Actor")
        ]
        held = {(str(each.get("_key")), str(each.get("_address"))) for each in actors}
        if held:
            return held.pop() if len(held) == 1 else None
    return None


def _own_line(walked: list[tuple[FrameType, int]]) -> tuple[str, tuple[str, ...]]:
    own = [(frame, line) for frame, line in walked if not is_library(_file_of(frame))]
    if not own:
        return "", ()
    frame, line = own[-1]
    file, function = _file_of(frame), frame.f_code.co_name
    if file == "<dynamic-code>":  # a function pickled by value (cloudpickle 3.1.3)
        file = _file_in_main(function, line) or file
    return place_of(function, file, line), _lines_around(file, line)


def place_of(function: str, file: str, line: int) -> str:
    """Return a place in the caller's code as ``function (file:line)``."""
    name = "cell" if "/ipykernel_" in file else file.rpartition("/")[2]
    return f"{name}:{line}" if function == "<module>" else f"{function} ({name}:{line})"


def _file_in_main(name: str, line: int) -> str:
    """Return the file of the main module's function with that name and line, or ""."""
    try:
        values = list(islice(vars(sys.modules["__main__"]).values(), _MAX_NAMES))
    except (KeyError, RuntimeError, TypeError):  # another thread changes it, or it is not a module
        return ""
    classes = [vars(each) for each in values if type(each) is type]
    functions = chain(values, *(each.values() for each in classes))
    codes = deque(each.__code__ for each in functions if type(each) is FunctionType)
    for _ in range(_MAX_NAMES):
        if not codes:
            break
        code = codes.popleft()
        lines = [number for *_, number in code.co_lines() if number]
        if code.co_name == name and lines and code.co_firstlineno <= line <= max(lines):
            return code.co_filename.replace("\\", "/")
        codes.extend(each for each in code.co_consts if type(each) is CodeType)
    return ""


def _file_of(frame: FrameType) -> str:
    return frame.f_code.co_filename.replace("\\", "/")


def _lines_around(file: str, line: int) -> tuple[str, ...]:
    lines: list[str] = []
    with guarded("reading a source file"):  # frames that were rebuilt may name anything
        lines = linecache.getlines(file) if _is_source(file) else []
    if not 0 < line <= len(lines):
        return ()
    first = max(line - _NEIGHBOURS, 1)
    return tuple(
        f"{'>' if number == line else ' '} {number:>4}  {text.rstrip()[:_LINE_CHARS]}"
        for number, text in enumerate(lines[first - 1 : line + _NEIGHBOURS], first)
    )


def context_of(exc: BaseException) -> BaseException | None:
    """Return the exception's context, or None if it is suppressed."""
    return None if exc.__suppress_context__ else exc.__context__


def members_of(exc: BaseException) -> tuple[BaseException, ...]:
    """Return the members of an exception group; none of any other exception."""
    return exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()


def linked_exceptions(exc: BaseException, *, with_suppressed: bool = False) -> Iterator[BaseException]:
    """Yield the exception and all linked ones, the nearest first."""
    ahead: list[BaseException | None] = [exc]
    known: set[int] = set()
    while ahead and len(known) < _MAX_LINKED:
        each = ahead.pop(0)
        if each is not None and id(each) not in known:
            known.add(id(each))
            yield each
            context = each.__context__ if with_suppressed else context_of(each)
            ahead += [each.__cause__, context, *members_of(each)]


def packages_of(exc: BaseException) -> set[str]:
    """Return the packages that define the exception's class and its base classes."""
    return {cls.__module__.partition(".")[0] for cls in type(exc).__mro__}


def type_name(exc: BaseException) -> str:
    """Return the class as Python prints it: ``ValueError``, ``distributed.scheduler.KilledWorker``."""
    module, name = type(exc).__module__, type(exc).__qualname__
    return utf8_safe(name if module == "builtins" else f"{module}.{name}")[:_MAX_CHARS]
