"""
Where an exception was raised, as far as its traceback tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from workerdiag.sources.exception import slots

#: Functions in which a worker, or a local scheduler, runs a task (2024.8.1 to 2026.8.0).
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
#: Functions of distributed/client.py that raise what a task raised.
_FETCHERS = {"result", "_result", "gather", "_gather"}
#: Functions of distributed/client.py that raise what a function outside of tasks raised.
_RUNNERS = {"run", "_run", "run_on_scheduler", "_run_on_scheduler"}
_MAX_FRAMES = 5000


def raised_in_task(exc: BaseException) -> bool:
    """
    Whether a task raised it, and Dask carried it here.

    A worker cuts its own frames off a traceback before it pickles it (``get_traceback`` in
    distributed/utils.py), so what tells is: frames rebuilt by tblib, which begin where the
    task's function does; or, where the task had no Python frame of its own (``int("x")``) and none is
    left, that the client's ``result`` or ``gather`` raised an error which is not one of Dask's.
    Not seen: tasks of ``scheduler="threads"`` or ``"processes"`` when Dask shortens the traceback
    (``admin.traceback.shorten``), and tracebacks that somebody removed.
    """
    frames = list(_frames(exc))
    if any(frame.f_code.co_name in _TASK_RUNNERS.get(_short_path(frame), ()) for frame in frames):
        return True
    first_rebuilt = next((index for index, frame in enumerate(frames) if is_rebuilt_frame(frame)), None)
    if first_rebuilt is not None:
        before = frames[first_rebuilt - 1] if first_rebuilt else None
        by_run = before is not None and _short_path(before) == _CLIENT and before.f_code.co_name in _RUNNERS
        by_server = (
            _short_path(frames[first_rebuilt]) == "distributed/core.py"
        )  # a handler failed, not a task
        return not by_run and not by_server
    last = frames[-1] if frames else None
    fetched = last is not None and _short_path(last) == _CLIENT and last.f_code.co_name in _FETCHERS
    return fetched and not _is_client_error(exc)


_CLIENT = "distributed/client.py"


def _frames(exc: BaseException) -> Iterator[FrameType]:
    traceback = slots.traceback_of(exc)
    for _ in range(_MAX_FRAMES):
        if traceback is None:
            return
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _short_path(frame: FrameType) -> str:
    """
    The last two parts of the file's path: ``distributed/client.py``.
    """
    return "/".join(frame.f_code.co_filename.replace("\\", "/").rsplit("/", 2)[-2:])


def is_rebuilt_frame(frame: FrameType) -> bool:
    """
    Whether tblib rebuilt the frame: all its frames run the statement ``raise __traceback_maker``.
    """
    return "__traceback_maker" in frame.f_code.co_names


def _is_client_error(exc: BaseException) -> bool:
    """
    Whether a client raises such errors of its own accord: cancelled, timed out, killed, disconnected.
    """
    packages = ("distributed", "asyncio", "concurrent", "tornado")
    return isinstance(exc, TimeoutError) or not slots.packages_of(exc).isdisjoint(packages)
