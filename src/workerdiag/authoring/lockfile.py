"""The lock of a rule folder: which revision of each rule was released with which content.

The first edit after a release that can change a diagnosis raises the rule's revision, so that a report's
"revision 4" always means the same rule, and no released id may ever vanish.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict

from workerdiag.model.rules import Cause, Landmark, Rulebook

#: The lock's name in a rule folder.
LOCK_FILE = "lock.json"


#: What of a cause can change a diagnosis; its wording can be mended freely.
_DECISIVE_KEYS = (
    "signs against explains frequency ends includes_task_errors at_own_limit blame retry status".split()
)
#: Examples prove a sign and do not change what it matches.
_EXAMPLE_KEYS = ("seen", "lookalikes", "introduced", "removed")


def lock_text(book: Rulebook) -> str:
    """The text of the lock of *book*: revision and content hash of every rule, sorted by id."""
    entries = {
        key: {"revision": rule.revision, "sha256": _digest(rule)} for key, rule in _rules_by_id(book).items()
    }
    return json.dumps(entries, indent=1, sort_keys=True) + "\n"


def _digest(rule: Cause | Landmark) -> str:
    """SHA-256, in hexadecimal, of what in *rule* can change a diagnosis."""
    content = asdict(rule)
    if isinstance(rule, Cause):
        content = {key: content[key] for key in _DECISIVE_KEYS}
    else:
        content.pop("revision")
    return hashlib.sha256(json.dumps(_digest_content(content), sort_keys=True).encode()).hexdigest()


def lock_problems(folder: Path, book: Rulebook) -> list[str]:
    """Return what the lock of *folder* does not allow in *book*. Without a lock nothing was released."""
    path = folder / LOCK_FILE
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return [*revision_problems(known, book)]
    except (ValueError, TypeError, KeyError, AttributeError) as problem:  # as after a merge conflict
        return [f"{LOCK_FILE} cannot be read: {problem}; restore the one that was committed last"]


def lock_rules(folder: Path, book: Rulebook) -> list[str]:
    """Write the lock of *folder*, unless that would hide something; return what."""
    problems = lock_problems(folder, book)
    if not problems:
        (folder / LOCK_FILE).write_text(lock_text(book), encoding="utf-8")
    return problems


def revision_problems(known: Mapping[str, Mapping[str, Any]], book: Rulebook) -> Iterator[str]:
    """Yield the released ids that vanished, and each rule whose revision is not the one that its content needs."""
    rules = _rules_by_id(book)
    for rule_id in known.keys() - rules.keys():
        yield f'{rule_id}: has vanished; keep it, with status = "deprecated" and the reason'
    for rule_id, rule in rules.items():
        entry = known.get(rule_id)
        if entry is None:
            needed, why = 1, "was never released"
        elif _digest(rule) == entry["sha256"]:
            needed, why = entry["revision"], f"is as revision {entry['revision']} was released"
        else:
            needed, why = entry["revision"] + 1, f"was edited since revision {entry['revision']} was released"
        if rule.revision != needed:
            yield f"{rule_id}: {why}; set revision = {needed}"


def _rules_by_id(book: Rulebook) -> dict[str, Cause | Landmark]:
    rules: tuple[Cause | Landmark, ...] = (*book.causes, *book.landmarks)
    return {each.id: each for each in rules}


def _digest_content(value: object) -> object:
    """Without examples and what is empty, so that a key that gets a default changes no hash."""
    if isinstance(value, Mapping):
        content = {key: _digest_content(each) for key, each in value.items() if key not in _EXAMPLE_KEYS}
        return {key: each for key, each in content.items() if each not in ("", None, False, [], {})}
    return [_digest_content(each) for each in value] if isinstance(value, (list, tuple)) else value
