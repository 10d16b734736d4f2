"""Redaction of objects of the model and of plain values: secrets, and on request names and addresses.

Line ends stay, so that line numbers keep their meaning.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache
from operator import is_
from typing import Any, TypeVar, cast

from attrs import evolve, fields, has

from workerdiag.model.identity import Identity
from workerdiag.redaction.named_values import is_no_secret, is_secret_name
from workerdiag.redaction.secrets import HIDDEN, redact_text

T = TypeVar("T")

#: Of these none is a secret.
_PLAIN = frozenset({type(None), bool, int, float})


def redact_object(value: T) -> T:
    """The object without secrets in its texts and without values of secrets' names, at any depth.

    An object without secrets is returned itself; attributes that are no part of its value stay.
    """
    kind = type(value)
    if kind in _PLAIN or (kind is tuple and not value):  # as most are
        return value
    new = redact_text(value) if isinstance(value, str) else _redact_value(value)
    if new is value or (type(new) is type(value) and new == value):
        return value
    return cast("T", new)


def _redact_value(value: object) -> object:
    match value:
        case None | int() | float():
            return value
        case str():
            return redact_text(value)
        case bytes():
            text = value.decode("utf-8", "surrogateescape")
            return redact_text(text, keep_lines=True).encode("utf-8", "surrogateescape")
        case list() | tuple():
            elements = [redact_object(_redact_pair(each)) for each in value]
            return value if all(map(is_, elements, value)) else type(value)(elements)
    names = _field_names(cast("Hashable", type(value)))
    return _redact_mapping(value) if names is None else _redact_fields(value, names)


def _redact_mapping(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {
        _redact_value(key): _redact_field(str(key), each) for key, each in _redact_name_and_value(value).items()
    }


def _redact_fields(value: object, names: Iterable[tuple[str, str]]) -> object:
    changes = {}
    for name, alias in names:
        old = getattr(value, name)
        if (new := redact_object(old)) is not old:
            changes[alias] = new
    return evolve(cast("Any", value), **changes) if changes else value


@cache
def _field_names(kind: type[object]) -> tuple[tuple[str, str], ...] | None:
    """The names of a class's fields and of their arguments, or None if it is not of attrs."""
    if not has(kind):
        return None
    return tuple((each.name, each.alias or each.name) for each in fields(kind) if each.eq)


def _redact_field(name: str, value: object) -> object:
    return HIDDEN if _is_secret(name, value) else redact_object(value)


def _is_secret(name: str, value: object) -> bool:
    if not is_secret_name(name.strip("-.")) or value is None or isinstance(value, bool):
        return False
    return bool(value) if isinstance(value, Mapping | list | tuple) else not is_no_secret(name, str(value))


def _redact_name_and_value(value: Mapping[object, object]) -> Mapping[object, object]:
    """The mapping with the value of ``{"name": "DB_PASSWORD", "value": "x"}`` hidden."""
    name = next((each for key in ("name", "key", "Name", "Key") if isinstance(each := value.get(key), str)), "")
    hidden: dict[object, object] = {
        key: HIDDEN for key in ("value", "Value") if key in value and _is_secret(name, value[key])
    }
    return {**value, **hidden} if hidden else value


def _redact_pair(value: object) -> object:
    """An element; if it is a pair of a secret's name and its value, with the value hidden."""
    match value:
        case (str(name), str(said) | bytes(said)) if isinstance(value, list | tuple):
            return type(value)((name, _redact_field(name, said)))
    return value


#: Each begins with something definite, so that long texts are searched fast.
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
_IPV6 = re.compile(r"\[([0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?:%\w+)?\]")
_HOST_OF_IP = re.compile(r"ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z0-9-]{1,63}){0,4}")
_COMMON_ADDRESSES = ("127.", "0.0.0.0", "255.", "169.254.169.254")  # noqa: S104  nothing is bound to it
_HOME = re.compile(r"(/home/|/Users/|\\Users\\)([^/\\\s:'\"]{1,64})")
_HOST_IN_ADDRESS = re.compile(r"\b[a-z]{2,8}://([A-Za-z][\w.-]{0,250}):\d{1,5}")
#: Names that identify nobody.
_COMMON_NAMES = frozenset({"localhost", "root", "user", "dask", "ubuntu", "jovyan", "scheduler", "worker"})
_MAX_NAMES = 500


class Anonymizer:
    """Hides the same things the same way in all that goes into one bundle.

    *names* are names of hosts and users to replace, with IP addresses and home folders; None: none of these.
    """

    def __init__(self, *, redact: bool, names: Iterable[str] | None = None) -> None:
        self._redact = redact
        self._anonymous = names is not None
        self._stand_ins: dict[str, str] = {}
        self._used_stand_ins: set[str] = set()
        self._counts: Counter[str] = Counter()
        identifying = {name for name in names or () if len(name) > 2 and name not in _COMMON_NAMES}
        by_length = sorted(identifying, key=lambda name: (-len(name), name))[:_MAX_NAMES]
        words = "|".join(map(re.escape, by_length))
        self._names = re.compile(rf"(?:{words})(?![\w-])") if words else None

    @property
    def hidden(self) -> list[str]:
        """Return what is hidden, for the manifest."""
        return ["secrets"] * self._redact + ["hosts", "addresses", "users"] * self._anonymous

    def text(self, text: str) -> str:
        """Return the text without what must be hidden."""
        if self._redact:
            text = redact_text(text, keep_lines=True)
        return self._nameless(text) if self._anonymous else text

    def data(self, data: bytes) -> bytes:
        """Do the same for log text; bytes that are not UTF-8 stay."""
        if not (self._redact or self._anonymous):
            return data
        text = data.decode("utf-8", errors="surrogateescape")
        return self.text(text).encode("utf-8", errors="surrogateescape")

    def values(self, value: object) -> object:
        """Do the same for every text in dictionaries and lists; a key such as "password" counts too."""
        value = redact_object(value) if self._redact else value
        return self._anonymized(value) if self._anonymous else value

    def _anonymized(self, value: object) -> object:
        if isinstance(value, str):
            return self._nameless(value)
        if isinstance(value, Mapping):
            return {self._anonymized(key): self._anonymized(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._anonymized(each) for each in value]
        return value

    def _nameless(self, text: str) -> str:
        text = _IPV4.sub(self._address, text)
        text = _IPV6.sub(lambda found: f"[{self._stand_in('address6', found[1])}]", text)
        text = _HOST_OF_IP.sub(self._name, text)
        text = _HOME.sub(lambda found: found[1] + self._stand_in("name", found[2]), text)
        return self._names.sub(self._name, text) if self._names else text

    def _address(self, found: re.Match[str]) -> str:
        if _is_in_word(found) or found[0].startswith(_COMMON_ADDRESSES):
            return found[0]
        return self._stand_in("address", found[0])

    def _name(self, found: re.Match[str]) -> str:
        return found[0] if _is_in_word(found) else self._stand_in("name", found[0])

    def _stand_in(self, kind: str, name: str) -> str:
        """Return a stand-in, the same each time; that of an address is an address."""
        if name in self._used_stand_ins or name in _COMMON_NAMES:
            return name
        if name not in self._stand_ins:
            self._counts[kind] += 1
            number = self._counts[kind]
            self._stand_ins[name] = {
                "address": f"10.{240 + number // 65536 % 16}.{number // 256 % 256}.{number % 256}",
                "address6": f"fd00::{number:x}",
            }.get(kind, f"{kind}-{number}")
            self._used_stand_ins.add(self._stand_ins[name])
        return self._stand_ins[name]


def _is_in_word(found: re.Match[str]) -> bool:
    before = found.string[found.start() - 1 : found.start()]
    return bool(before) and (before.isalnum() or before in "_.-")


def names_to_hide(identities: Iterable[Identity], texts: Iterable[str]) -> Iterator[str]:
    """Yield the known host names, and the current user."""
    import getpass

    for identity in identities:
        if identity.host:
            yield identity.host
    for text in texts:
        yield from _HOST_IN_ADDRESS.findall(text)
    yield platform.node()
    yield platform.node().partition(".")[0]
    try:
        yield getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        return
