"""
How the time of one question is shared out.
"""

from __future__ import annotations

import time

#: What is live gets this share, the smaller one where there are logs to read as well: it forgets, files
#: do not.
_LIVE_SHARE, _LIVE_SHARE_WITH_LOGS = 0.75, 0.6
#: After this share text is searched no more, so that judging what was found ends in time.
_SEARCH_SHARE = 0.85
#: Code of the exception's own may run for so long, and in any case for so many seconds.
_EXCEPTION_SHARE = 0.2
_MIN_EXCEPTION_S = 0.1
#: Installed packs may take so much of it to load, and finding the evidence that cannot be judged so much.
_PACKS_SHARE, _SALVAGE_SHARE = 0.15, 0.1
#: Logs are read for so many seconds, and such a share, however late it is; but no longer than the last.
_MIN_S, _LEAST_SHARE, _MOST_LEAST_S = 0.1, 0.1, 0.5
#: After this share nothing more is searched or joined; of short times more is left, so that judging ends in
#: time: so many seconds, or half of it.
_FOUND_SHARE = 0.9
_JUDGING_S, _JUDGING_SHARE = 0.25, 0.5


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
        self._live_s = budget_s * (_LIVE_SHARE_WITH_LOGS if with_logs else _LIVE_SHARE)
        #: Seconds for the exception.
        self.exception_s = max(_MIN_EXCEPTION_S, _EXCEPTION_SHARE * budget_s)
        #: Seconds for installed packs.
        self.packs_s = _PACKS_SHARE * budget_s
        judging_s = max((1 - _FOUND_SHARE) * budget_s, min(_JUDGING_S, _JUDGING_SHARE * budget_s))
        self._found_until = self._began + budget_s - judging_s
        #: When to search what live places said no more, as `time.monotonic` counts.
        self.search_until = min(self._began + _SEARCH_SHARE * budget_s, self._found_until)

    @property
    def live_s(self) -> float:
        """
        Seconds for what is live, from now on.
        """
        return max(0.0, min(self._live_s, self.search_until - time.monotonic()))

    @property
    def salvage_until(self) -> float:
        """
        When to try no more, as `time.monotonic` counts.
        """
        return max(time.monotonic() + _SALVAGE_SHARE * self._budget_s, self._began + self._budget_s)

    @property
    def left_s(self) -> float:
        """
        Seconds that are left to read logs, some in any case.
        """
        least_s = min(_MOST_LEAST_S, _MIN_S + _LEAST_SHARE * self._budget_s)
        return max(least_s, self.search_until - time.monotonic())

    def is_over(self) -> bool:
        """
        Whether it is time to judge what was found until now.
        """
        return time.monotonic() > self._found_until
