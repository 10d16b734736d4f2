"""
How the processes that the nannies of this process watched have ended, as the nannies noted it.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Any

#: The latest records of the nannies' log that are looked at, and the ends in them that are told.
MAX_RECORDS = 1000
MAX_ENDS = 100
#: A nanny on a busy machine notes the end of its worker at most this many seconds late.
NOTING_S = 2.0


def read(request: dict[str, Any]) -> dict[str, object]:
    """
    The ends noted since ``asked["since_s"]`` seconds ago, the latest first.

    Args:
        request: ``ended``: how a nanny words an end, with pid and signal, or a third group where it does not
            know which; ``since_s``.

    Returns:
        ``ends``: pid, signal (0 for an exit of its own) and time, by this machine's clock, of each;
        ``noted_until``: a process that ended before, and after *since_s*, and is not among them ended with
        status 0; 0 where that is not known.
    """
    since = time.time() - float(request.get("since_s", 600.0))
    ends: list[list[float]] = []
    noted_until = 0.0
    nannies = getattr(getattr(sys.modules.get("distributed.nanny"), "Nanny", None), "_instances", ())
    for nanny in list(nannies)[:1]:  # all nannies of one process have the same log
        records = nanny.get_logs(n=MAX_RECORDS, timestamps=True)
        reaches_back = len(records) < MAX_RECORDS or min(each[0] for each in records) < since
        if reaches_back and logging.getLogger("distributed.nanny").isEnabledFor(logging.INFO):
            noted_until = time.time() - NOTING_S
        for when, _, text in records:
            found = re.search(request["ended"], str(text))
            if found and when >= since and found.group(3):
                noted_until = 0.0
            elif found and when >= since:
                ends.append([int(found.group(1)), int(found.group(2) or 0), float(when)])
    return {"ends": ends[:MAX_ENDS], "noted_until": noted_until if len(ends) <= MAX_ENDS else 0.0}
