"""pytest: a failing test that used a cluster carries its diagnosis, and a strict run allows no deaths.

Every pytest in whose environment workerdiag is installed loads this module. So it imports nothing of ours and
nothing of Dask until the tests themselves have imported distributed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from workerdiag.api.diagnosis import Diagnosis
    from workerdiag.integrations.cluster_observer import ClusterObserver, ObservedDeaths

#: Title of the section in a report, and what the names of properties begin with.
SECTION = "workerdiag"
_DEATH = f"{SECTION}.death"
_MARKER = "worker_deaths_expected"
_OBSERVER = pytest.StashKey["ClusterObserver"]()
#: Characters of a test's name in that of its bundle.
_MAX_CHARS = 150
#: Fingerprints of the diagnoses that were shown.
_SHOWN = pytest.StashKey[set[str]]()
#: The deaths seen during one test, in any of its phases.
_DEATHS = pytest.StashKey["list[ObservedDeaths]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag and the setting."""
    group = parser.getgroup("workerdiag", "deaths of Dask's workers")
    group.addoption(
        "--workerdiag-strict",
        action="store_true",
        help="fail a run in which a worker died unexpectedly, even if all tests passed",
    )
    group.addoption(
        "--workerdiag-bundles",
        metavar="DIR",
        help="save a death bundle of each failing test whose workers died in this folder",
    )
    parser.addini("workerdiag_timeout", "seconds that the diagnosis of one test may take", default="10")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; the process that reports also gives the verdict."""
    timeout = config.getini("workerdiag_timeout")
    if not re.fullmatch(r"\d+(\.\d+)?", timeout):
        raise pytest.UsageError(f"workerdiag_timeout must be a number of seconds, got {timeout!r}")
    config.addinivalue_line("markers", f"{_MARKER}: workers may die in this test; --workerdiag-strict allows it")
    if config.getoption("workerdiag_strict") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(StrictVerdict(), "workerdiag-strict")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave Dask as it was."""
    if (observer := config.stash.get(_OBSERVER, None)) is not None:
        observer.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to observe before the first cluster is there."""
    item.stash[_DEATHS] = []  # a test may be run again
    with suppress(Exception):
        _observer(item.config)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)  # old style: pytest 7 may load this module, too
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Add the diagnosis to the report of a failure, and the deaths to that of the teardown."""
    outcome = yield
    with suppress(Exception):
        observer = _observer(item.config)
        if observer is not None and outcome.excinfo is None:
            _complete_report(observer, item, call, outcome.get_result())


def _observer(config: pytest.Config) -> ClusterObserver | None:
    """The observer of this process; None as long as nobody uses Dask."""
    if "distributed" not in sys.modules:
        return None
    if _OBSERVER not in config.stash:
        from workerdiag.integrations.cluster_observer import ClusterObserver

        config.stash[_OBSERVER] = observer = ClusterObserver(float(config.getini("workerdiag_timeout")))
        observer.start()
    return config.stash[_OBSERVER]


def _complete_report(
    observer: ClusterObserver, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    deaths = item.stash[_DEATHS]
    is_strict = bool(item.config.getoption("workerdiag_strict"))
    if report.failed or report.when == "teardown":
        observer.look(judge=report.failed or is_strict)
    deaths += observer.take()
    if report.failed and call.excinfo is not None:
        diagnosis = observer.explain(call.excinfo.value, deaths)
        if diagnosis is not None:
            _show(diagnosis, item, report)
    if report.when == "teardown" and item.get_closest_marker(_MARKER) is None:
        _add_properties(item, report, [(_DEATH, text) for each in deaths for text in _texts(each)])


def _show(diagnosis: Diagnosis, item: pytest.Item, report: pytest.TestReport) -> None:
    """Add it whole the first time, and one screen of it for later tests that fail for the same reason."""
    from workerdiag.integrations.diagnose import facts

    shown = item.config.stash.setdefault(_SHOWN, set())
    report.sections.append((SECTION, diagnosis.to_text(full=diagnosis.fingerprint not in shown)))
    shown.add(diagnosis.fingerprint)
    known: dict[str, object] = {**facts(diagnosis), **_save(diagnosis, item, report)}
    _add_properties(item, report, [(f"{SECTION}.{name}", value) for name, value in known.items()])


def _save(diagnosis: Diagnosis, item: pytest.Item, report: pytest.TestReport) -> dict[str, str]:
    """Where the bundle is, if one is wanted; one that cannot be saved is said so in the report."""
    from workerdiag.errors import BundleError

    folder = item.config.getoption("workerdiag_bundles")
    if folder is None:
        return {}
    name = re.sub(r"[^\w.-]+", "-", item.nodeid)[-_MAX_CHARS:]
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        return {"bundle": str(diagnosis.save(Path(folder, f"{name}.zip")))}
    except (BundleError, OSError) as problem:
        report.sections.append((SECTION, f"no bundle: {problem}"))
        return {}


def _texts(observed: ObservedDeaths) -> list[str]:
    from workerdiag.rendering.wording import exit_text, identity_text, one_line, printable

    top = observed.diagnosis.top
    why = f" ({top.title})" if observed.diagnosis.outcome == "explained" and top else ""
    return [
        printable(one_line(f"{identity_text(each.identity)}: {exit_text(each)}{why}")) for each in observed.deaths
    ]


def _add_properties(item: pytest.Item, report: pytest.TestReport, properties: Sequence[tuple[str, object]]) -> None:
    """To the report at hand and to the later ones of the test: junit-xml reads those of the teardown."""
    item.user_properties += properties
    report.user_properties += properties


class StrictVerdict:
    """Fails a run in which a worker died unexpectedly, also in the other processes of xdist."""

    def __init__(self) -> None:
        #: Test and death.
        self._deaths: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the deaths of one test."""
        if report.when == "teardown":
            self._deaths += [
                (report.nodeid, str(value)) for name, value in report.user_properties if name == _DEATH
            ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that passed."""
        if self._deaths and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List the deaths."""
        if not self._deaths:
            return
        terminalreporter.section("workerdiag: workers died unexpectedly", red=True)
        for test, death in dict.fromkeys(self._deaths):
            terminalreporter.line(f"{test}: {death}")
        terminalreporter.line(f"Mark tests that expect this: @pytest.mark.{_MARKER}")
