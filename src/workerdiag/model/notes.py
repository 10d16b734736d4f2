"""The words that identify our note in an exception (PEP 678). Imports nothing."""

from __future__ import annotations

from typing import Final

#: How a note begins, and how many lines it has at most.
NOTE_START: Final = "workerdiag: "
NOTE_LINES: Final = 3
#: How a note without an answer begins.
NO_ANSWER: Final = f"{NOTE_START}no answer"
#: The note where there was no time for an answer.
LATE_NOTE: Final = f"{NO_ANSWER} in time; print(workerdiag.explain(exc, client)) takes longer and tells why"
