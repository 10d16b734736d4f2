"""
Texts of Dask that code goes by (distributed 2024.8.1 to 2026.8.0); all that tells causes apart is in rules.
"""

from __future__ import annotations

import re

#: A nanny noted the end of its worker (nanny.py, ``_death_message``), with the process id.
PROCESS_ENDED = re.compile(r"Worker process (\d+) (?:was killed by|exited with)")
#: The same with the signal, or the word that it is not known; as text, for probes search with it elsewhere.
PROCESS_ENDED_BY = (
    r"Worker process (\d+) (?:was killed by (?:signal (\d+)|(unknown) signal)|exited with status \d+)"
)
#: How a KilledWorker words itself: since 2022.9.2, and before (as a tuple). Bounded, and only as its text
#: begins: any other search takes seconds for text that nearly fits, and holds the interpreter meanwhile.
KILLED_WORKER = re.compile(
    r"\s*Attempted to run task '?(?P<task>.{1,2000}?)'? on \d{1,9} different workers[\s\S]{0,300}?"
    r"last worker that attempt(?:ed)? to run the task was (?P<worker>\w{1,20}://[^\s,]{1,300}?)\.?(?:\s|$)"
)
KILLED_WORKER_OLD = re.compile(
    r"\s*\('?(?P<task>.{1,2000}?)'?, <Worker(?:State)? '?(?P<worker>\w{1,20}://[^',\s>]{1,300})"
)


def is_other_nanny(text: str, nanny: str) -> bool:
    """
    Whether a log record is that of a nanny at another address, which starts or ends.
    """
    return "Nanny at" in text and "://" in text and nanny not in text


def removed_worker(line: str) -> tuple[str, str] | None:
    """
    Address and name of the worker that the scheduler removes in that line, if it has a name of its own.

    ``Remove worker addr: tcp://10.0.0.4:4002 name: w-0 (stimulus_id='...')``, since 2024.12.0.
    """
    worker, named, rest = line.partition("Remove worker addr: ")[2].partition(" name: ")
    name = rest.rpartition(" (stimulus_id=")[0]
    return (worker, name) if named and name and name != worker else None


def is_disallowed(problem: object) -> bool:
    """
    Whether a server refused because of ``blocked-handlers``, or as it may not unpickle functions.
    """
    return isinstance(problem, PermissionError) or "explicitly disallowed" in str(problem)
