"""
From ``knowledge/`` to a `Rulebook`: the only room that knows TOML and cattrs hooks.

TOML files are the source. A wheel also carries ``knowledge.json``, compiled from them when
it is built, because reading that takes milliseconds and no cattrs.
"""

from workerdiag.rulebook.advice import SharedAdvice
from workerdiag.rulebook.compiled import compile_rulebook, patterns
from workerdiag.rulebook.folder import read_folder
from workerdiag.rulebook.load import load_rulebook, load_rulebook_in_time, quiet_lines, shipped_folder
from workerdiag.rulebook.schema import SCHEMA, SIGN_KINDS

__all__ = [
    "SCHEMA",
    "SIGN_KINDS",
    "SharedAdvice",
    "compile_rulebook",
    "load_rulebook",
    "load_rulebook_in_time",
    "patterns",
    "quiet_lines",
    "read_folder",
    "shipped_folder",
]
