"""The last output of a dead worker's C libraries, without text that other processes wrote.

All processes of a job may write into one file, or replace it. What Python wrote is known better from black boxes;
the rest counts as possibly this worker's only if nothing says that it is another's.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path

from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.procfs_and_cgroups import file_id
from workerdiag.wire.black_box import BlackBox
from workerdiag.wire.messages import StderrTail

#: Read at most this much of a file.
MAX_BYTES = 16 * 1024
#: If a pipe replaced the file, opening must not block (``man 7 fifo``); a terminal must not become ours.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"))

#: Largest size in a report, as JSON.
MAX_CHARS = 16 * 1024


def last_stderr(path: Path, box: BlackBox, *, just_now: bool) -> StderrTail | None:
    """The output on standard error that bypassed Python; None if there is none.

    Lines in the box and lines of other workers are omitted. Waits at most one second. Unless the worker has
    ended *just_now*, later workers may have written to the file.
    """
    read = partial(_read_last_output, path, box, just_now=just_now)
    try:
        return call_in_time("workerdiag-last-output", read, Deadline.after(1.0))  # of a network file system, maybe
    except CALL_FAILURES:
        return None


def _read_last_output(path: Path, box: BlackBox, *, just_now: bool) -> StderrTail | None:
    known = box_lines(box.last_output)
    who = box.identity
    offset = who.get("stderr_offset", "")
    if not (who.get("stderr_path") and who.get("stderr_file") and offset.isdecimal()):
        return None
    until = None
    if not just_now:  # later workers began to write where the file ended then
        later = (its for _, its in _boxes_of_same_file(path, who) if _started_later(its, box))
        until = min((int(_parsed_float(its.get("stderr_offset"))) for its in later), default=None)
    text = tail(Path(who["stderr_path"]), file=who["stderr_file"], since=int(offset), until=until)
    if not (lines := possibly_own_lines(text, known, who)):
        return None
    others = list(_other_writers(path, box, just_now=just_now))
    for other in others:
        known |= box_lines(other.last_output)
    if lines := possibly_own_lines(text, known, who):
        return StderrTail(text=_last_lines(lines), is_shared=bool(others))
    return None


def _other_writers(path: Path, box: BlackBox, *, just_now: bool) -> Iterator[BlackBox]:
    """The boxes of other workers that wrote to the same file while this one ran."""
    from workerdiag.errors import BadBoxError
    from workerdiag.recorder.box.reader import read_box

    for other, its in islice(_boxes_of_same_file(path, box.identity), 16):
        if not just_now and _started_later(its, box):
            continue
        try:
            found = read_box(other)
        except BadBoxError:
            continue
        if found.written_at >= box.created_at:
            yield found


def _started_later(identity: Mapping[str, str], box: BlackBox) -> bool:
    """Whether a process started after the last write to a box, at most a second before its worker ended."""
    return _parsed_float(identity.get("started")) > box.written_at


def _boxes_of_same_file(path: Path, who: Mapping[str, str]) -> Iterator[tuple[Path, Mapping[str, str]]]:
    from workerdiag.errors import BadBoxError
    from workerdiag.recorder.box.directories import find_boxes
    from workerdiag.recorder.box.reader import read_identity

    for other in find_boxes([path.parent]):
        try:
            its = read_identity(other)
        except BadBoxError:
            continue
        if other != path and all(its.get(name) == who.get(name) for name in ("stderr_file", "boot_id")):
            yield other, its


def _parsed_float(text: str | None) -> float:
    try:
        number = float(text or 0)
    except ValueError:
        return 0.0
    return number if isfinite(number) else 0.0


def _last_lines(lines: list[str]) -> str:
    """The last lines that fit; if a single line is too long, its end."""
    text = "\n".join(lines)
    while len(json.dumps(text)) > MAX_CHARS:
        text = text[len(text) // 8 + 1 :]
        text = text.partition("\n")[2] or text
    return text


def tail(path: Path, *, file: str | None = None, since: int = 0, until: int | None = None) -> str:
    """The last whole lines, at most 16 KiB, written to a file between the offsets *since* and *until*.

    Empty if the file is missing, is not a regular file, is not *file* (as `file_id` returns it), or is shorter than
    *since*, because a truncated file does not show what is new. Links are not followed.
    """
    try:
        if not _is_expected_file(path.lstat(), file):
            return ""
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return ""
    try:
        about = os.fstat(descriptor)
        if not _is_expected_file(about, file) or about.st_size < since:
            return ""
        end = about.st_size if until is None else min(about.st_size, until)
        begin = max(since, end - MAX_BYTES)
        data = os.pread(descriptor, max(end - begin, 0), begin)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    if begin > since:
        data = data.partition(b"\n")[2] or data
    return data.replace(b"\0", b"").decode("utf-8", "replace")


def _is_expected_file(about: os.stat_result, file: str | None) -> bool:
    return stat.S_ISREG(about.st_mode) and file in (None, file_id(about))


#: Records that Dask's loggers print, in the default format (``distributed.admin.log-format``) or one that
#: has logger and level in it.
_LEVEL = r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b"
_LOGGER = r"\b(?:distributed\.[\w.]{1,60}|tornado\.application)\b"
_LOGGED = re.compile(rf"{_LOGGER}.{{0,40}}{_LEVEL}|{_LEVEL}.{{0,40}}{_LOGGER}")
#: What follows the first line of a record with a traceback (CPython, Lib/traceback.py).
_TRACEBACK = re.compile(
    r"\s|$|Traceback \(most recent call last\)|The above exception was|During handling of the above"
)
_EXCEPTION = re.compile(r"[\w.]{1,200}(?::|$)")
_ADDRESS = re.compile(r"\b(?:tcp|tls|ucx|ucxx|ws|wss|inproc)://[\w.\-\[\]:%/]{1,100}")
#: How programs name their process: as such, as valgrind and AddressSanitizer do, Open MPI, NCCL.
_PID = re.compile(
    r"\bpid[ =:]{1,3}(\d{1,10})\b|^==(\d{1,10})==|"
    r"^\[[\w.-]{1,64}:(\d{1,10})\]|^[\w.-]{1,64}:(\d{1,10}):\d{1,10} \[",
    re.IGNORECASE,
)


def possibly_own_lines(text: str, known: Collection[str], who: Mapping[str, str]) -> list[str]:
    """Of the lines that are not *known*, those that nothing shows to be another's, or to be Dask's log.

    *known* are lines that some worker's Python wrote. Dask's log of this worker, *who*, is known from its black
    box; other records of Dask are of its nanny or of other workers, tracebacks behind them included.
    """
    own_lines: list[str] = []
    in_record, indented = False, False
    for line in _split_lines(text):
        if line in known:
            in_record = False
        elif _LOGGED.search(line):
            in_record, indented = True, False
        elif in_record and (_TRACEBACK.match(line) or (indented and _EXCEPTION.match(line))):
            indented = line[:1].isspace()
        else:
            in_record = False
            if line.strip() and not _names_other_process(line, who):
                own_lines.append(line)
    return own_lines


def box_lines(text: str) -> frozenset[str]:
    """The lines of a black box, to compare with."""
    return frozenset(_split_lines(text))


def _split_lines(text: str) -> list[str]:
    r"""Lines by ``\n`` and ``\r``; other characters that Python takes for ends of lines are left alone."""
    return re.split(r"[\r\n]+", text)


def _names_other_process(line: str, who: Mapping[str, str]) -> bool:
    """Whether a line names a process or an address, and only such as are not the worker's."""
    addresses = {found[0].rstrip(":.") for found in _ADDRESS.finditer(line)}
    pids = {next(filter(None, found.groups())) for found in _PID.finditer(line)}
    ours = {who.get("worker"), who.get("pid")}
    return bool(addresses or pids) and not (addresses | pids) & ours
