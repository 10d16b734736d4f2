"""
The words by which a note of ours in an exception is known (PEP 678). Imports nothing.
"""

from __future__ import annotations

from typing import Final

#: How a note begins, and how many lines it has at most.
NOTE_START: Final = "workerdiag: "
NOTE_LINES: Final = 3
#: How a note begins that says why there is no answer.
NO_ANSWER: Final = f"{NOTE_START}no answer"
#: The note where there was no time for an answer.
LATE_NOTE: Final = f"{NO_ANSWER} in time; print(workerdiag.explain(exc, client)) takes longer and tells why"
