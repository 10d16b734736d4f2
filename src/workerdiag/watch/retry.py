"""
When a delivery that failed is tried again, and when it is given up.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen
from attrs.validators import ge, gt

#: An exponent beyond which every wait is the longest; 2.0 to a larger one overflows some day.
_MAX_DOUBLINGS = 60


@frozen(kw_only=True)
class RetrySettings:
    """
    Waits that double, with half of each at random, so that many senders do not come back at once.
    """

    #: Before the second attempt, in seconds.
    first_s: float = field(default=1.0, validator=gt(0))
    #: However often it failed, in seconds.
    longest_s: float = field(default=600.0, validator=gt(0))
    #: However late the receiver asks to be tried again, in seconds.
    longest_retry_after_s: float = field(default=86400.0, validator=gt(0))
    #: Attempts until it is a dead letter: with the waits above, 18 to 24 hours.
    max_attempts: int = field(default=150, validator=ge(1))

    def wait_s(self, failures: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
        """
        Seconds until the next attempt, never fewer than the receiver asked for.

        Args:
            failures: Attempts that failed, from 1.
            retry_after_s: What the receiver asked for.
            random: A number from 0 to 1, another one at each call.
        """
        step = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        wait = step * (0.5 + 0.5 * random())
        if retry_after_s is not None and retry_after_s > 0:  # a NaN is not
            asked = min(retry_after_s, self.longest_retry_after_s)
            return max(wait, asked + self.first_s * random())
        return wait
