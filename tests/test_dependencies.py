"""pyproject.toml declares the distributions that the package imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import workerdiag

PACKAGE = Path(workerdiag.__file__).parent
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

#: Distribution -> its module, where the module is not the name with dots for dashes.
MODULES = {
    "google-re2": "re2",
    "google-cloud-compute": "google.cloud.compute_v1",
    "apache-airflow-task-sdk": "airflow.sdk",
    "importlib-resources": "importlib_resources",
    "ipython": "IPython",
    "opentelemetry-api": "opentelemetry",
    "prometheus-client": "prometheus_client",
    "sentry-sdk": "sentry_sdk",
}
#: In the standard library of newer releases of Python only.
NEWER_STANDARD_LIBRARY = {"compression"}


def declared_modules() -> set[str]:
    """The modules of all dependencies and extras."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = [re.match(r"[A-Za-z0-9.-]+", each)[0].lower() for each in requirements]
    return {MODULES.get(name, name.replace("-", ".")) for name in names}


@cache
def imported_modules() -> set[str]:
    """Every module from elsewhere that the package imports, at the top or inside functions."""
    ours = sys.stdlib_module_names | NEWER_STANDARD_LIBRARY | {"workerdiag"}
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    names = {name for tree in trees for node in ast.walk(tree) for name in _named(node)}
    return {name for name in names if name.partition(".")[0] not in ours}


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (each.name for each in names)
        case ast.ImportFrom(module=str(module)):
            yield module
        case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(module))]):
            yield module


def is_within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def test_every_imported_library_is_declared():
    """No library is there only because another one happens to need it."""
    declared = declared_modules()
    assert not {name for name in imported_modules() if not any(is_within(name, each) for each in declared)}


def test_every_declared_library_is_imported():
    """Nothing is installed that the package does not import."""
    imported = imported_modules()
    assert not {each for each in declared_modules() if not any(is_within(name, each) for name in imported)}
