"""The plugin for pytest where nobody's worker dies; tests/lab/test_pytest_plugin.py has real deaths."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points

import pytest

#: Loaded by its entry point where workerdiag is installed, else by its name.
LOAD = () if entry_points(group="pytest11", name="workerdiag") else ("-p", "workerdiag.integrations.pytest")


def run_pytest(folder, test, *options):
    """Status and output of pytest on one test module."""
    (folder / "test_user.py").write_text(textwrap.dedent(test))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", *LOAD, "-p", "no:cacheprovider", "-s", *options]
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # it is for us
    done = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_run_without_dask_loads_nothing(tmp_path):
    """Other projects' runs do not notice the plugin, strict or not, passing or failing."""
    test = """
        import sys

        def test_passes():
            pass

        def test_fails():
            assert 0

        def test_shows():
            print("LOADED", *sys.modules)
    """
    status, output = run_pytest(tmp_path, test, "--workerdiag-strict")
    assert status == 1
    assert "1 failed, 2 passed" in output
    (line,) = [each for each in output.splitlines() if "LOADED" in each]
    loaded = set(line.split())
    package = [sys.executable, "-c", "import sys, workerdiag.integrations; print(*sys.modules)"]
    without_plugin = set(subprocess.run(package, capture_output=True, text=True, check=True).stdout.split())
    ours = {each for each in loaded if each.partition(".")[0] == "workerdiag"}
    assert ours - without_plugin == {"workerdiag.integrations.pytest"}
    assert not loaded & {"dask", "distributed", "attrs", "cattrs", "jinja2"}


@pytest.mark.slow
def test_a_timeout_that_is_none_is_said_at_once(tmp_path):
    """Before any test runs, and with what is wanted."""
    status, output = run_pytest(tmp_path, "def test(): pass", "-o", "workerdiag_timeout=soon")
    assert status == 4
    assert "workerdiag_timeout must be a number of seconds, got 'soon'" in output


@pytest.mark.slow
def test_dask_is_left_as_it_was(tmp_path):
    """A client closes through ours while tests run, and through its own method again when they are over."""
    test = """
        import atexit
        from distributed import Client

        def test_is_observed():
            assert Client.close.__wrapped__ is not None

        atexit.register(lambda: print("RESTORED", not hasattr(Client.close, "__wrapped__")))
    """
    status, output = run_pytest(tmp_path, test)
    assert status == 0, output
    assert "RESTORED True" in output


@pytest.mark.slow
def test_a_cluster_that_hangs_or_fails_changes_no_result(tmp_path):
    """Whatever the plugin runs into, tests pass and fail as without it, and it gives up on that client."""
    test = """
        import distributed, pytest
        from workerdiag.integrations import cluster_observer

        asked = []

        class Silent:
            status, asynchronous, id, cluster = "running", False, "silent", None

            def sync(self, *args, **options):
                asked.append(options["callback_timeout"])
                raise TimeoutError

        @pytest.fixture(autouse=True, scope="module")
        def broken():
            client = Silent()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cluster_observer, "open_clients", lambda: [client])
                patch.setattr(cluster_observer, "diagnose", lambda *_, **__: 1 / 0)
                yield

        def test_passes():
            pass

        def test_fails():
            raise ValueError("as before")

        def test_was_asked_once():
            assert asked == [2.0]
    """
    status, output = run_pytest(tmp_path, test, "--workerdiag-strict")
    assert status == 1
    assert "1 failed, 2 passed" in output, output
    assert "as before" in output
