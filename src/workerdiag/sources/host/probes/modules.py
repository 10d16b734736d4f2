"""Finds modules and the packages that they come from, without importing any."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import site
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def read(request: dict[str, Any]) -> dict[str, object]:
    """Return ``found``: each of ``request["modules"]`` (names without a dot) that can be imported here.

    For each its ``file``, the ``package`` that it comes from (empty if not installed), the ``version`` of that or a
    digest of the file, and ``late``: whether a new process of this program would not find it, since its folder came
    to ``sys.path`` later.
    """
    found = {}
    for name in request["modules"]:
        spec = _spec_of(name)
        if spec is not None:
            file = str(spec.origin or next(iter(spec.submodule_search_locations or ()), ""))
            package, version = _package_of(name, is_installed="-packages" in file)
            version = version or _digest_of(file)
            found[name] = {"file": file, "package": package, "version": version, "late": _is_late(file, spec)}
    return {"found": found}


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError, AttributeError):  # ValueError: a module that was made without a file
        return None


def _package_of(module: str, *, is_installed: bool) -> tuple[str, str]:
    try:
        return module, importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        pass
    list_all: Any = getattr(importlib.metadata, "packages_distributions", dict)  # takes .1 s; since Python 3.10
    package = next(iter(list_all().get(module, ())), "") if is_installed else ""
    return package, importlib.metadata.version(package) if package else ""


def _digest_of(file: str) -> str:
    path = Path(file)
    if not path.is_file() or path.stat().st_size > 2**20:
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def _is_late(file: str, spec: ModuleSpec) -> bool:
    folder = Path(file).parent
    if spec.submodule_search_locations is not None and spec.origin:
        folder = folder.parent
    if not folder.is_absolute() or folder not in map(_absolute, sys.path):
        return False  # built in, or found by an import hook such as that of an editable installation
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    at_start = {Path.cwd(), _absolute(main).parent, *map(_absolute, _folders_of_sites())}
    at_start |= set(map(_absolute, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    installed = (sys.prefix, sys.base_prefix, site.getuserbase())
    return folder not in at_start and not str(folder).startswith(installed)


def _absolute(path: str) -> Path:
    return Path(path).absolute()


def _folders_of_sites() -> list[str]:
    """The folders that files with the ending .pth add."""
    folders: list[str] = []
    for site_folder in map(Path, (*site.getsitepackages(), site.getusersitepackages())):
        for file in site_folder.glob("*.pth"):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            folders += [line.strip() for line in lines if not line.startswith(("import", "#"))]
    return folders
