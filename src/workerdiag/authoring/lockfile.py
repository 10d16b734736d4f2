"""The lock of a rule folder: which revision of each rule had which content.

An edit that can change a diagnosis must raise the rule's revision, so that a report's
"revision 4" always means the same rule, and no id may ever vanish. ``lock.json`` beside
``manifest.toml`` is how a check can know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict

from attrs import asdict

from workerdiag.model.rules import Cause, Landmark, Rulebook

#: The lock's name in a rule folder.
LOCK_FILE = "lock.json"


class _LockedRule(TypedDict):
    revision: int
    sha256: str


#: What of a cause can change a diagnosis; its wording can be mended freely.
_DECISIVE_KEYS = (
    "signs",
    "against",
    "explains",
    "frequency",
    "ends",
    "includes_task_errors",
    "at_own_limit",
    "blame",
    "retry",
    "status",
)
#: Examples prove a sign and do not change what it matches.
_EXAMPLE_KEYS = ("seen", "lookalikes", "introduced", "removed")


def lock_text(book: Rulebook) -> str:
    """The text of the lock of *book*: revision and content hash of every rule, sorted by id."""
    entries = {
        rule_id: {"revision": rule.revision, "sha256": rule_digest(rule)}
        for rule_id, rule in _rules_by_id(book).items()
    }
    return json.dumps(entries, indent=1, sort_keys=True) + "\n"


def rule_digest(rule: Cause | Landmark) -> str:
    """SHA-256, in hexadecimal, of what in *rule* can change a diagnosis."""
    content = asdict(rule)
    if isinstance(rule, Cause):
        content = {key: content[key] for key in _DECISIVE_KEYS}
    else:
        content.pop("revision")
    return hashlib.sha256(json.dumps(_digest_content(content), sort_keys=True).encode()).hexdigest()


def lock_problems(folder: Path, book: Rulebook) -> list[str]:
    """What the lock of *folder* does not allow in *book*, or does not know yet."""
    path = folder / LOCK_FILE
    if not path.exists():
        return [f"{LOCK_FILE} is missing: write it with `workerdiag knowledge lock {folder}`"]
    return _problems_by(
        path, lambda known: [*revision_problems(known, book), *_unlocked_rules(known, book, folder)]
    )


def lock_rules(folder: Path, book: Rulebook) -> list[str]:
    """Write the lock of *folder*, unless that would hide something: then what."""
    path = folder / LOCK_FILE
    problems = _problems_by(path, lambda known: [*revision_problems(known, book)]) if path.exists() else []
    if not problems:
        path.write_text(lock_text(book), encoding="utf-8")
    return problems


def _problems_by(path: Path, find: Callable[[Mapping[str, _LockedRule]], list[str]]) -> list[str]:
    """The problems that *find* sees in the lock, or that it is unreadable, as after a merge conflict."""
    try:
        return find(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        return [f"{LOCK_FILE} cannot be read: {problem}; restore the one that was committed last"]


def revision_problems(known: Mapping[str, _LockedRule], book: Rulebook) -> Iterator[str]:
    """Ids that vanished, and edits without a new revision: what a new lock would hide."""
    rules = _rules_by_id(book)
    for rule_id, entry in known.items():
        rule = rules.get(rule_id)
        if rule is None:
            yield f'{rule_id}: has vanished; keep it, with status = "deprecated" and the reason'
        elif rule.revision < entry["revision"]:
            yield f"{rule_id}: revision {rule.revision} is older than the {entry['revision']} that is locked"
        elif rule.revision == entry["revision"] and rule_digest(rule) != entry["sha256"]:
            yield f"{rule_id}: was edited; set revision = {rule.revision + 1}"


def _unlocked_rules(known: Mapping[str, _LockedRule], book: Rulebook, folder: Path) -> Iterator[str]:
    for rule_id, rule in _rules_by_id(book).items():
        if rule_id not in known or rule.revision > known[rule_id]["revision"]:
            yield f"{rule_id}: is not locked yet; run `workerdiag knowledge lock {folder}`"


def _rules_by_id(book: Rulebook) -> dict[str, Cause | Landmark]:
    rules: dict[str, Cause | Landmark] = {each.id: each for each in book.causes}
    rules.update((each.id, each) for each in book.landmarks)
    return rules


def _digest_content(value: object) -> object:
    """Without examples and what is empty, so that a key that gets a default changes no hash."""
    if isinstance(value, Mapping):
        content = {key: _digest_content(each) for key, each in value.items() if key not in _EXAMPLE_KEYS}
        return {key: each for key, each in content.items() if each not in ("", None, False, [], {})}
    return [_digest_content(each) for each in value] if isinstance(value, (list, tuple)) else value
