"""The time plan of `explain`: the share of each step."""

from __future__ import annotations

from workerdiag.deadline import Deadline

#: Share of the live cluster and its platforms, and a smaller one if there are logs too: the cluster forgets,
#: files do not.
_LIVE_SHARE, _LIVE_SHARE_WITH_LOGS = 0.75, 0.6
#: Share after which text is not searched any more, so that scoring ends in time.
_SEARCH_SHARE = 0.85
#: Share for the code of the exception, and its minimum in seconds.
_EXCEPTION_SHARE = 0.2
_MIN_EXCEPTION_S = 0.1
#: Shares for loading installed packs, and for isolating faulty evidence.
_PACKS_SHARE, _SALVAGE_SHARE = 0.15, 0.1
#: Minimum time for logs, even if it is late: seconds plus a share, up to a maximum in seconds.
_MIN_S, _LEAST_SHARE, _MOST_LEAST_S = 0.1, 0.1, 0.5
#: Share for scoring; of a short time these seconds, but at most half of it.
_SCORING_SHARE = 0.1
_SCORING_S, _MOST_SCORING_SHARE = 0.25, 0.5


class TimePlan:
    """The deadlines of one call of `explain`, within the *whole*. Logs take time from the live cluster."""

    def __init__(self, whole: Deadline, *, with_logs: bool) -> None:
        budget_s = whole.left_s
        scoring_s = max(_SCORING_SHARE * budget_s, min(_SCORING_S, _MOST_SCORING_SHARE * budget_s))
        self._whole = whole
        self._live_s = budget_s * (_LIVE_SHARE_WITH_LOGS if with_logs else _LIVE_SHARE)
        self._least_logs_s = min(_MOST_LEAST_S, _MIN_S + _LEAST_SHARE * budget_s)
        self._least_salvage_s = _SALVAGE_SHARE * budget_s
        #: Deadline for collecting; then the conclusion begins.
        self.found = Deadline.after(budget_s - scoring_s)
        #: Deadline for searching the text of live places.
        self.search = Deadline.after(min(_SEARCH_SHARE * budget_s, budget_s - scoring_s))

    @property
    def exception(self) -> Deadline:
        """For reading the exception, from now on."""
        return self._whole.share(_EXCEPTION_SHARE, at_least_s=_MIN_EXCEPTION_S)

    @property
    def packs(self) -> Deadline:
        """For loading installed packs, from now on."""
        return self._whole.share(_PACKS_SHARE)

    @property
    def live(self) -> Deadline:
        """For the live cluster and its platforms, from now on."""
        return self.search.share(at_most_s=self._live_s)

    @property
    def logs(self) -> Deadline:
        """For reading logs, from now on; some time in any case."""
        return self.search.share(at_least_s=self._least_logs_s)

    @property
    def salvage(self) -> Deadline:
        """For finding the evidence that the pipeline fails on, from now on; some time in any case."""
        return self._whole.share(at_least_s=self._least_salvage_s)
