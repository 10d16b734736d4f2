"""
Which names are those of secrets: ``DB_PASSWORD``, ``apiKey``, ``spring.datasource.password``.

Dask writes "key" and "token" of what is no secret, so these need company.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: A word that ends with one of these names a secret, in the singular and in the plural.
_STRONG = tuple(
    "password passwd passphrase passcode passwort secret token pwd cookie credential apikey jwt"
    " sessionid sessid".split()
)
#: Words with which names end that say something about a secret, which is not it.
_ABOUT = frozenset(
    "error errors exception warning type kind count size length len limit timeout ttl expires expiry"
    " expiration expired lifetime name names ref policy provider manager class format required enabled"
    " valid endpoint region port".split()
)
#: Words with which names end of places where a secret is kept.
_PLACES = frozenset("file filename path dir directory folder location url uri".split())
_PLACE = re.compile(r"(?:[./~]|[A-Za-z]:\\|\w{1,20}://)")
#: Words before "key" that make it a key of something, and no key to something.
_HARMLESS_BEFORE_KEY = frozenset(
    "task tasks sort primary foreign partition row cache public host group dict last worker future index"
    " column object registry config routing shard hash join merge map lookup event topic ts self each this"
    " the run sub dep dependency dependent parent child dask s3 blob json yaml data first next missing"
    " unknown bad invalid duplicate no any every attribute tag label filter annotation"
    " field metric order".split()
)
_BEHIND_KEY = frozenset("id ids secret material data value string b64 base64 hex pem text raw enc".split())
_HARMLESS_KEYS = frozenset("monkey turkey donkey hockey jockey whiskey lackey hotkey subkey pubkey".split())
_HARMLESS_BEFORE_PASS = frozenset(
    "first second third single multi two one by low high band last next forward backward this".split()
)
_HARMLESS_PASSES = frozenset("compass bypass trespass surpass overpass underpass encompass".split())
_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]")
#: A key of a task: its kind, of at most 16 words, then a hash or a number.
_TASK_KEY = re.compile(r"[a-z_]+(?:-[a-z_]+){0,15}-(?:[0-9a-f]{4,}[0-9a-f-]*|\d+)")
_FILE = re.compile(
    r"\.(?:py|pyc|json|ya?ml|toml|ini|cfg|conf|txt|log|csv|parquet|pem|crt|env|sh|db|so|zarr|html?|js|go|rs|java)$"
)
_COMPANY = re.compile(
    r"(?i)\b(?:api|access|secret|private|encryption|account|storage|shared|signing|master|service"
    r"|licen[cs]e|subscription|client|auth|aws|gcp|ssh)[ ]$"
)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """
    Whether *name*, of letters, digits, ``_``, ``-`` and ``.``, is that of a secret.
    """
    if _TASK_KEY.fullmatch(name) or _FILE.search(name):
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _ABOUT:
        return False
    if any(_is_strong(word) for word in words) or name in {"sig", "Signature"}:
        return True
    if words[-1] == "signature" and len(words) > 1:
        return True
    if name.isupper() and any(word in name.lower() for word in _STRONG):
        return True
    return _is_key(name, words) or _is_pass(words) or _is_auth(name)


def is_key_in_company(name: str, before: str) -> bool:
    """
    Whether it is the key of "api key", with *before* it "api ".
    """
    is_key = before.endswith(" ") and name.lower() in {"key", "keys"}
    return is_key and _COMPANY.search(before) is not None


def is_about_place(name: str, value: str) -> bool:
    """
    Whether it says where a secret is kept: ``password_file=/run/secrets/db``.
    """
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _PLACES and _PLACE.match(value) is not None


@lru_cache(maxsize=4096)
def is_header(name: str) -> bool:
    """
    Whether it is a header whose value goes on to the end of the line.
    """
    word = name.lower().rpartition("-")[2]
    return word in {"authorization", "cookie", "cookie2"}


def _is_strong(word: str) -> bool:
    return word.removesuffix("s").endswith(_STRONG) or word in {"cred", "creds"}


def _is_key(name: str, words: list[str]) -> bool:
    if len(words) == 1 and words[0] in {"key", "keys"}:
        return name in {"KEY", "KEYS"}
    for at, word in enumerate(words):
        if word in {"key", "keys"}:
            if at == 0:
                return name.isupper()
            ends = at == len(words) - 1 or words[at + 1] in _BEHIND_KEY or ".key." in name.lower()
            is_of = len(words[at - 1]) == 1 or words[at - 1] in _HARMLESS_BEFORE_KEY  # ``t.key``
            return (ends or name.isupper()) and not is_of
        stem = word.removesuffix("s")
        if stem.endswith("key") and stem not in _HARMLESS_KEYS:
            return stem.removesuffix("key") not in _HARMLESS_BEFORE_KEY
    return False


def _is_pass(words: list[str]) -> bool:
    for at, word in enumerate(words):
        if word == "pass":
            return at == 0 or words[at - 1] not in _HARMLESS_BEFORE_PASS
        if word.endswith("pass") and word not in _HARMLESS_PASSES:
            return True
    return False


def _is_auth(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name.rpartition(".")[2])]
    return any(word.endswith("auth") or word == "authorization" for word in words)
