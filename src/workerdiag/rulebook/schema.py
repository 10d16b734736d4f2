"""
What the files may hold: the shape that this engine reads, and the kinds of signs.
"""

from __future__ import annotations

from collections.abc import Mapping

from workerdiag.model.signs import (
    AbsentSign,
    EventSign,
    ExceptionSign,
    ExitSign,
    LandmarkSign,
    LogSign,
    TogetherSign,
)

#: Shape of the files that this engine reads.
SCHEMA = 1
#: Newest rules that it understands (`engine` in a rule); a newer rule is skipped with a note.
ENGINE = (0, 1)

SIGN_KINDS: Mapping[str, type[object]] = {
    "log": LogSign,
    "landmark": LandmarkSign,
    "exit": ExitSign,
    "event": EventSign,
    "exception": ExceptionSign,
    "absent": AbsentSign,
    "together": TogetherSign,
}
KIND_OF = {cls: kind for kind, cls in SIGN_KINDS.items()}
#: TOML tables are named in the singular, as TOML files usually have them.
FIELD_OF_TABLE = {
    "sign": "signs",
    "mitigation": "mitigations",
    "rival": "rivals",
    "next_step": "next_steps",
    "except": "exceptions",
}
