"""
Where the value of a setting was set.
"""

from __future__ import annotations

import os

from workerdiag.settings.defaults import ROOT, defaults

_INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
#: No value of any setting.
_NOTHING = object()


def origin(key: str, value: object) -> str:
    """
    Who said so, the strongest first: Python, the environment, a file of Dask's configuration, the default.
    """
    import dask.config

    name = f"{ROOT}.{key}"
    if dask.config.get(name, _NOTHING, config=dask.config.collect_env()) == value:
        return _variable(name)
    files = list(dask.config.collect_yaml(dask.config.paths, return_paths=True))
    for path, content in reversed(files):
        if dask.config.get(name, _NOTHING, config=content) == value:
            return str(path)
    return "the default" if defaults().get(key, _NOTHING) == value else "dask.config.set in Python"


def _variable(name: str) -> str:
    for each in os.environ:
        if each.startswith("DASK_") and each[5:].lower().replace("__", ".").replace("_", "-") == name:
            return f"the variable {each}"
    return f"the process that started this one ({_INHERITED})"
