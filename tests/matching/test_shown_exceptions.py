"""An exception is told however it is shown: as a traceback ends, or as a program prints its repr."""

from __future__ import annotations

import pytest

from workerdiag import LogText, explain


@pytest.mark.parametrize(
    ("kind", "text", "cause"),
    [
        ("TypeError", "code() takes at most 15 arguments (16 given)", "exception.version-mismatch"),
        ("EOFError", "Ran out of input", "exception.deserialization"),
        ("AssertionError", "Timeout too low", "exception.bad-argument"),
        ("ImportError", "Install s3fs to access S3", "exception.missing-module"),
        ("PermissionError", "Forbidden", "exception.permission-denied"),
    ],
)
@pytest.mark.parametrize(
    "shown",
    [
        "{kind}: {text}",
        "future: <Task finished name='Task-7' coro=<f() done> exception={kind}('{text}')>",
        'raised {kind}("{text}")',
    ],
)
def test_an_exception_is_known_by_its_line_and_by_its_repr(kind, text, cause, shown):
    """Both asyncio and concurrent.futures show what a task raised as ``Class('text')``."""
    diagnosis = explain(logs=LogText(shown.format(kind=kind, text=text) + "\n"))
    assert diagnosis.top is not None
    assert diagnosis.top.id == cause


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (
            '  File "/home/user/job/setup.py", line 3, in <module>\n    import torch\n',
            "exception.missing-module",
        ),
        (
            """\
  File "/opt/python/lib/python3.12/importlib/__init__.py", line 90, in import_module
    return _bootstrap._gcd_import(name[level:], package, level)
""",
            "exception.preload-failed",
        ),
    ],
)
def test_a_preload_that_cannot_import_is_at_fault_only_where_it_is_itself_missing(last, cause):
    """What has to be changed is the environment, or the name of the preload."""
    text = (
        "distributed.preloading - INFO - Import preload module: setup\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/env/lib/python3.12/site-packages/distributed/preloading.py", line 182, in _import_module\n'
        "    module = import_module(name)\n" + last + "ModuleNotFoundError: No module named 'torch'\n"
    )
    diagnosis = explain(logs=LogText(text, "worker"))
    assert diagnosis.top is not None
    assert diagnosis.top.id == cause
