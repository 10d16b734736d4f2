"""Source packages of Debian, without a change to what the machine's apt knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

#: One line per index of binary packages that apt knows: where from, which release, which component.
_INDEXES = ("--format", "$(ORIGIN) $(COMPONENT) $(SITE) $(RELEASE)", "Created-By: Packages")


def fetch_source(folder: Path, package: str) -> Path:
    """The ``.dsc`` of a source package of this Debian, downloaded into *folder* unless it is there.

    ``deb-src`` need not be enabled: sources come from where the machine's binary packages do, by
    an apt of our own in *folder*.
    """
    if not list(folder.glob(f"{package}_*.dsc")):
        folder.mkdir(parents=True, exist_ok=True)
        own = _own_apt(folder)
        subprocess.run(["apt-get", *own, "update"], check=True)
        command = ["apt-get", *own, "source", "--download-only", package]
        subprocess.run(command, cwd=folder, check=True)
    (described,) = folder.glob(f"{package}_*.dsc")
    return described


def _own_apt(folder: Path) -> list[str]:
    """Options that have apt know the sources, and nothing else, for one command."""
    listed = subprocess.run(
        ["apt-get", "indextargets", *_INDEXES], capture_output=True, text=True, check=True
    ).stdout
    lists, sources = folder / "lists", folder / "sources.list"
    lists.mkdir(exist_ok=True)
    sources.write_text("".join(f"{each}\n" for each in sorted(set(source_lines(listed)))))
    return [
        *("-o", f"Dir::Etc::sourcelist={sources.resolve()}", "-o", "Dir::Etc::sourceparts=-"),
        *("-o", f"Dir::State::lists={lists.resolve()}"),
    ]


def source_lines(indexes: str) -> list[str]:
    """The lines of a sources.list that name the sources of what `apt-get indextargets` listed."""
    return [
        f"deb-src {site} {release} main"
        for site, release in re.findall(r"^Debian main (\S+) (\S+)$", indexes, re.MULTILINE)
    ]
