"""Settings: Dask's configuration, the environment, and the defaults."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import dask.config
import pytest
from click.testing import CliRunner

import workerdiag
from workerdiag import settings
from workerdiag.cli import main
from workerdiag.settings import SETTINGS, documentation_url, is_allowed, seconds, setting
from workerdiag.watch.case import WatchSettings

PACKAGE = Path(workerdiag.__file__).parent
ROOT = Path(__file__).parents[1]
READ = "from workerdiag.settings import setting; print(setting('watch.collect'))"


@pytest.fixture(autouse=True)
def _each_problem_is_new():
    settings._log_once.cache_clear()


def logged(caplog, key):
    """The value of a setting, and what is logged when it is read."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "workerdiag.settings"):
        value = setting(key)
    return value, caplog.messages


def run(code, tmp_path, **variables):
    """Output of *code* in a new interpreter, whose home is *tmp_path*."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    environment = {**kept, "HOME": str(tmp_path), **variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip(), done.stderr


def test_each_default_is_allowed():
    """A setting that nobody changes is never said to be wrong."""
    assert all(is_allowed(key, each.default) for key, each in SETTINGS.items())


def test_a_setting_without_dask_costs_no_import(tmp_path):
    """A log is read on a machine where nobody configured workerdiag without waiting for Dask or YAML."""
    code = f"{READ}; import sys; print([each for each in ('dask', 'yaml') if each in sys.modules])"
    assert run(code, tmp_path)[0].split("\n") == ["5m", "[]"]


@pytest.mark.parametrize("first", ["", "import dask.config; "], ids=["without dask", "with dask"])
def test_the_environment_sets(first, tmp_path):
    """``DASK_WORKERDIAG__*`` holds where a setting is read, whether or not Dask was imported before."""
    assert run(first + READ, tmp_path, DASK_WORKERDIAG__WATCH__COLLECT="7s")[0] == "7s"


@pytest.mark.parametrize("first", ["", "import dask.config; "], ids=["without dask", "with dask"])
def test_a_file_sets(first, tmp_path):
    """A file in the folder of the user's configuration holds, whatever its name."""
    folder = tmp_path / ".config" / "dask"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("workerdiag:\n  watch:\n    collect: 8s\n", encoding="utf-8")
    assert run(first + READ, tmp_path)[0] == "8s"


def test_a_comment_sets_nothing(tmp_path):
    """A process without Dask still needs none."""
    folder = tmp_path / ".config" / "dask"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("distributed:  # not workerdiag:\n  version: 2\n", encoding="utf-8")
    assert run(f"{READ}; import sys; print('dask' in sys.modules)", tmp_path)[0].split("\n") == ["5m", "False"]


def test_python_sets():
    """``dask.config.set`` holds from the next reading on, with dashes and with underscores."""
    with dask.config.set({"workerdiag.recorder.append_to": "a", "workerdiag.note.timeout": "500ms"}):
        assert setting("recorder.append-to") == "a"
        assert seconds("note.timeout") == 0.5
    assert setting("recorder.append-to") is None
    assert seconds("note.timeout") == 2


def test_an_unknown_key_names_the_nearest(caplog):
    """A typo is said once, with what was probably meant."""
    with dask.config.set({"workerdiag.watch.colect": "5s"}):
        value, (message,) = logged(caplog, "watch.collect")
        assert value == "5m"
        assert "there is no setting workerdiag.watch.colect: did you mean workerdiag.watch.collect?" in message
        assert logged(caplog, "watch.collect") == ("5m", [])


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("recorder.append-to", 5, "text or null"),
        ("recorder.dashboard", "yes", "show or hide"),
        ("note.timeout", -1, "a duration like 10s, 5m or 4h, more than 0"),
        ("note.timeout", "soon", "a duration like 10s, 5m or 4h, more than 0"),
        ("note.timeout", [], "a duration like 10s, 5m or 4h, more than 0"),
        ("note.timeout", True, "a duration like 10s, 5m or 4h, more than 0"),
        ("watch.resolve", float("nan"), "a duration like 10s, 5m or 4h, more than 0"),
        ("documentation-url", "docs/", "an address that begins with http:// or https:// or null"),
    ],
)
def test_a_wrong_value_says_what_is_allowed(key, value, allowed, caplog):
    """Key, value, where it was set and what is allowed are in one sentence, and the default holds."""
    with dask.config.set({f"workerdiag.{key}": value}):
        found, (message,) = logged(caplog, key)
    assert found == SETTINGS[key].default
    assert f"workerdiag.{key} cannot be {value!r} (from dask.config.set in Python)" in message
    assert f"it must be {allowed}; the default {SETTINGS[key].default!r} applies" in message


@pytest.mark.slow
def test_a_wrong_value_says_which_variable_or_file_it_is_from(tmp_path):
    """What has to be mended is named: the variable, or the path of the file."""
    _, said = run(READ, tmp_path, DASK_WORKERDIAG__WATCH__COLLECT="none")
    assert "(from the variable DASK_WORKERDIAG__WATCH__COLLECT)" in said
    file = tmp_path / "mine.yaml"
    file.write_text("workerdiag: {watch: {collect: 0}}", encoding="utf-8")
    _, said = run(READ, tmp_path, DASK_CONFIG=str(file))
    assert f"(from {file})" in said


def test_a_value_in_place_of_a_section_is_said(tmp_path):
    """``workerdiag: {watch: copy}`` sets nothing, and does not do so silently."""
    found, said = run(READ, tmp_path, DASK_WORKERDIAG__WATCH="copy")
    assert found == "5m"
    assert "workerdiag.watch is a section, not a setting" in said


def test_a_secret_in_a_wrong_value_is_not_shown(caplog):
    """Logs are read by many."""
    with dask.config.set({"workerdiag.loki.url": "loki://me:hunter22secret@host/"}):
        _, (message,) = logged(caplog, "loki.url")
    assert "hunter22secret" not in message


def test_a_wrong_setting_never_raises_out_of_explain():
    """An ``except`` block is no place to learn of a typo the hard way."""
    with dask.config.set({"workerdiag.explain.timeout": [], "workerdiag.documentation-url": 3, "workerdiag.x": 1}):
        assert str(workerdiag.explain(logs=workerdiag.LogText("worker killed by signal 9")))


def test_reports_link_to_the_documentation():
    """With an address the report links to the page of the cause; without one it names a command."""
    text = "distributed.nanny - WARNING - Worker tcp://10.0.0.4:1 (pid=7) exceeded 95% memory budget. Restarting..."
    log = workerdiag.LogText(text)
    assert documentation_url("a.b") == ""
    assert "workerdiag knowledge show nanny.memory-terminate" in str(workerdiag.explain(logs=log))
    with dask.config.set({"workerdiag.documentation-url": "https://docs.example.org/wd/"}):
        report = str(workerdiag.explain(logs=log))
    assert "https://docs.example.org/wd/causes/nanny/memory-terminate.html" in report


def test_the_watcher_is_configured():
    """What a `WatchSettings` is not given is as Dask's configuration says."""
    assert WatchSettings() == WatchSettings(collect_s=300, resolve_s=900)
    ours = {
        "watch.resolve": "3s",
        "watch.bundles": "/deaths",
    }
    with dask.config.set({f"workerdiag.{key}": value for key, value in ours.items()}):
        assert WatchSettings(blind_s=5).resolve_s == 3
        assert WatchSettings().bundle_folder == Path("/deaths")


@pytest.mark.slow
def test_the_command_lists_what_holds():
    """Each setting has its value and its origin; what cannot be used is said, with exit status 1."""
    with dask.config.set({"workerdiag.watch.collect": "9s"}):
        good = CliRunner().invoke(main, ["settings"])
    assert good.exit_code == 0
    assert re.search(r"workerdiag\.watch\.collect +9s  \(dask\.config\.set in Python\)", good.stdout)
    assert re.search(r"workerdiag\.note\.timeout +2s  \(the default\)", good.stdout)
    with dask.config.set({"workerdiag.watch.collect": 0}):
        bad = CliRunner().invoke(main, ["settings"])
    assert bad.exit_code == 1
    assert "it must be a duration like 10s, 5m or 4h, more than 0" in bad.output


def test_every_setting_and_variable_is_on_the_page():
    """What the package reads is documented."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    read = set(re.findall(r"\b(?:setting|seconds|duration_setting|setting_in_seconds)\(\"([\w.-]+)\"", code))
    assert read <= set(SETTINGS)
    assert not re.findall(r"config\.get\(f?\"workerdiag", code)
    named = set(re.findall(r"\"(WORKERDIAG_\w+|\w+_(?:TOKEN|ADDR|ORG_ID))\"", code))
    page = (ROOT / "docs" / "write_configuration.py").read_text(encoding="utf-8")
    assert all(f'"{key}": (' in page for key in SETTINGS)
    assert named <= {*re.findall(r"^`(\w+)`$", page, re.MULTILINE), "WORKERDIAG_K8S_BIN"}
