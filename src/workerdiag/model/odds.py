"""The odds: how much likelier a sign of each grade makes its cause, and how likely a cause is before any sign."""

from __future__ import annotations

from collections.abc import Mapping

from workerdiag.model.vocabulary import Frequency, Grade

#: The likelihood ratio of each grade: how many times likelier a sign is if the cause is real than if it is
#: not. docs/calibration.md has the ratio measured on labelled incidents, with its interval, and
#: docs/what-the-numbers-mean.md says how each number was chosen, and why `weak` is below what was measured.
GRADES: Mapping[Grade, float] = {
    "decisive": 8000.0,  # the producer says so explicitly
    "strong": 2000.0,  # rarely seen otherwise
    "moderate": 250.0,  # the usual reading, with rivals
    "weak": 12.0,  # fits, but fits others too
    "hint": 3.0,  # says nothing alone
}

#: Likelihood ratios for causes of everyday ends, if a sign stands alone and nothing shows that a process
#: ended: an orderly shutdown leaves the same message.
LONE_GRADES: Mapping[Grade, float] = {"moderate": 120.0}

#: Prior odds of a cause against "unknown".
FREQUENCIES: Mapping[Frequency, float] = {"common": 0.04, "usual": 0.02, "rare": 0.01}
