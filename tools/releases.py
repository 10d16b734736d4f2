"""Releases of distributed: which there are, and their wheels. All of it through pip."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

_PACKAGE = "distributed"


class NoReleaseError(RuntimeError):
    """pip could not tell or bring what was asked for; the text is pip's."""


def known_releases() -> list[Version]:
    """All final releases that pip can see, oldest first.

    Raises:
        NoReleaseError: pip does not answer.
    """
    output = _pip("index", "versions", _PACKAGE)
    listed = re.search(r"Available versions:\s*(.+)", output)
    if listed is None:
        raise NoReleaseError(output)
    # the very first uploads had wheels whose platform pip takes for a part of the version
    named = [each.strip() for each in listed[1].split(",") if re.fullmatch(r"\s*[\d.]+\d\s*", each)]
    return sorted(Version(each) for each in named)


def wheel_of(release: Version, cache: Path) -> Path | None:
    """The wheel of *release* in the folder *cache*, downloaded if it is not there yet.

    None if there is a source distribution only: unpacking that would run its ``setup.py``.

    Raises:
        NoReleaseError: pip cannot bring it for any other reason.
    """
    cache.mkdir(parents=True, exist_ok=True)
    if not (there := _in_cache(release, cache)):
        try:
            _pip(
                "download",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--dest",
                str(cache),
                f"{_PACKAGE}=={release}",
            )
        except NoReleaseError as problem:
            if "No matching distribution" in str(problem):
                return None
            raise
        there = _in_cache(release, cache)
    return there[0] if there else None


def _in_cache(release: Version, cache: Path) -> Sequence[Path]:
    return sorted(cache.glob(f"{_PACKAGE}-{release}-*.whl"))


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own words
    if run.returncode:
        raise NoReleaseError(run.stderr.strip())
    return run.stdout
