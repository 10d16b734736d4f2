"""Which lines of a standard error that many share can be one worker's own.

All processes of a job write into one file: nannies, other workers, their children. Python's part of it is
known better from black boxes; what is left is taken as possibly this worker's only if nothing says that
it is another's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

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


def unknown_lines(text: str, known: Collection[str]) -> list[str]:
    """The lines that are not known already, each without what a terminal would overwrite."""
    return [line for line in _split_lines(text) if line.strip() and line not in known]


def possibly_own_lines(text: str, known: Collection[str], who: Mapping[str, str]) -> list[str]:
    """Of the lines that are not *known*, those that nothing shows to be another's, or to be Dask's log.

    Dask's log of this worker is known from its black box; other records of Dask are of its nanny or of
    other workers, tracebacks behind them included.

    Args:
        text: What the file has.
        known: Lines that some worker's Python is known to have written.
        who: The worker's identity, as its box has it.
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
