"""
How the processes that the nannies of this process watched have ended, as the nannies noted it.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any

#: The latest records of the nannies' log that are looked at, and the ends in them that are told.
MAX_RECORDS = 1000
MAX_ENDS = 100


def read(request: dict[str, Any]) -> dict[str, object]:
    """
    The ends noted since ``asked["since_s"]`` seconds ago, the latest first.

    Args:
        request: ``ended``: how a nanny words an end, with pid and signal; ``since_s``.

    Returns:
        ``ends``: pid, signal (0 for an exit of its own) and time, by this machine's clock, of each.
    """
    since = time.time() - float(request.get("since_s", 600.0))
    ends: list[list[float]] = []
    nannies = getattr(getattr(sys.modules.get("distributed.nanny"), "Nanny", None), "_instances", ())
    for nanny in list(nannies)[:1]:  # all nannies of one process have the same log
        for when, _, text in nanny.get_logs(n=MAX_RECORDS, timestamps=True):
            found = re.search(request["ended"], str(text))
            if found and when >= since:
                ends.append([int(found.group(1)), int(found.group(2) or 0), float(when)])
    return {"ends": ends[:MAX_ENDS]}
