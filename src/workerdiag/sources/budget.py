"""
How the time of one question is shared out.
"""

from __future__ import annotations

import time

#: What is live gets this share, the smaller one where there are logs to read as well: it forgets, files
#: do not.
_LIVE_SHARE, _LIVE_SHARE_WITH_LOGS = 0.7, 0.6
#: After this share text is searched no more, so that judging what was found ends in time.
_SEARCH_SHARE = 0.85
#: Logs are read for so long however late it is.
_LEAST_S = 0.5


class Budget:
    """
    The seconds that one question may take, from now on.

    Args:
        budget_s: How many.
        with_logs: Whether there are logs to read beside what is live.
    """

    def __init__(self, budget_s: float, *, with_logs: bool) -> None:
        self._budget_s = budget_s
        self._began = time.monotonic()
        #: Seconds for what is live.
        self.live_s = budget_s * (_LIVE_SHARE_WITH_LOGS if with_logs else _LIVE_SHARE)
        #: When to search what live places said no more, as `time.monotonic` counts.
        self.search_until = self._began + _SEARCH_SHARE * budget_s

    @property
    def left_s(self) -> float:
        """
        Seconds that are left, at least half a one.
        """
        return max(_LEAST_S, self._began + self._budget_s - time.monotonic())
