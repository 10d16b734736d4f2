"""Every chore of the project, and why it is there.

CI runs these sessions and nothing else (``.ci/run``). ``nox -l`` lists them; what stands
after ``--`` goes to the tool: ``nox -s tests -- -k literals``.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
# Where uv is installed beside nox it fills an environment in seconds; elsewhere pip does.
nox.options.default_venv_backend = "uv|virtualenv"
# Some containers set this. uv leaves compiling to the first import: each later process loads the result.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)

#: Releases of distributed that the lab kills workers of: the oldest supported, one between.
OLDER_RELEASES: Mapping[str, str] = {"oldest": "2024.8.1", "middle": "2025.7.0"}
#: Three tests at once for two cores: many wait, for a process or a time-out. Whoever has none left takes another's.
THREE_AT_ONCE = ("-n", "3", "--dist", "worksteal")
#: Try a lab test once more where the lab itself failed (a cluster did not start in time), never where an
#: answer of ours was wrong.
RETRY_LAB_ERRORS = ("--reruns", "1", "--only-rerun", "LabError", "--only-rerun", "Failed: Timeout")


@nox.session
def tests(session: nox.Session) -> None:
    """Test the wheel, not the checkout, so that a rule file left out fails here.

    Runs on the interpreter that runs nox; ``tests-3.11`` and so on run on the others. What takes
    longest, and what asks the packages of cloud providers, runs in ``tests_slow``.
    """
    session.install(".", *groups("tests"))
    session.run("pytest", *THREE_AT_ONCE, "-m", "not lab and not slow", *session.posargs)


@nox.session(default=False)
def tests_slow(session: nox.Session) -> None:
    """Run what ``tests`` leaves out: many examples, inputs or processes, and 150 MB of providers' packages."""
    session.install(".", *groups("tests"), *groups("clouds"))
    # Only the files that have such tests: each of the three processes would read all 250.
    files = [str(path) for path in sorted(Path("tests").rglob("test_*.py")) if "mark.slow" in path.read_text()]
    session.run("pytest", *THREE_AT_ONCE, "-m", "not lab and slow", *(session.posargs or files))


def every_test(session: nox.Session) -> None:
    """Install what users install, and run all tests, or those chosen after ``--``.

    ``PYTEST_ADDOPTS=--cov`` measures the coverage of branches, which takes half as long again.
    """
    session.install(".", *groups("tests"), *groups("clouds"))
    session.run("pytest", "-n", "2", *session.posargs)


for python in PYTHONS:
    nox.session(python=python, name=f"tests-{python}", default=False)(every_test)


@nox.session
def types(session: nox.Session) -> None:
    """Check our types strictly, and that they reach users: their view is the installed wheel."""
    session.install(".", *groups("types"))
    session.run("mypy", *session.posargs)
    session.run("mypy", "--config-file=", "--strict", "tests/typing")


@nox.session
def lint(session: nox.Session) -> None:
    """Keep form out of reviews: what a tool can see, no person should have to say."""
    session.install(*groups("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session
def size(session: nox.Session) -> None:
    """Keep the package as large as one person can carry: its modules and lines, and the modules of three walks.

    The walks, from a log, an exception and a death, are only printed. They read the rules of the checkout.
    """
    session.install("-e", ".")
    session.run("python", "tools/walks.py")
    session.run("python", "tools/size.py", "--check", *session.posargs)


@nox.session
def knowledge(session: nox.Session) -> None:
    """Check the rules as a rule's author does, with the commands that ship to everyone."""
    session.install(".")
    session.run("workerdiag", "knowledge", "lint", "knowledge", "--strict")
    session.run("workerdiag", "knowledge", "test", "knowledge", "--incidents", "tests/cases", "--strict")
    session.run("workerdiag", "knowledge", "lock", "--check", "knowledge")


@nox.session
def calibrate(session: nox.Session) -> None:
    """Hold the probabilities against what came true; fail when they got worse than in the last release.

    ``-- --write`` writes the tables of the current release to ``docs/calibration.md``; a folder behind it holds
    incidents of a live cluster (``python -m tests.lab.natural --keep FOLDER``) for the table of channels.
    """
    session.install(".")
    session.run("python", "tools/calibrate.py", *session.posargs)


@nox.session(default=False)
def lab(session: nox.Session) -> None:
    """Kill real workers of real clusters, because recorded text cannot change under us.

    Every fault on the newest distributed; with ``-- oldest`` or ``-- middle`` the commonest, and the recorder, on
    that release. ``alone`` and ``together`` are the two parts of each. Linux only; takes minutes.
    """
    release, part = (
        next((each for each in session.posargs if each in known), None)
        for known in (OLDER_RELEASES, ("alone", "together"))
    )
    others = [each for each in session.posargs if each not in (release, part)]
    if release is not None:
        session.install(".", f"distributed=={OLDER_RELEASES[release]}", *groups("lab"))
        chosen = "lab and common"
    else:
        session.install("--upgrade", ".", "distributed", *groups("lab"))
        chosen = "lab and not natural"
    options = ("tests/lab", *RETRY_LAB_ERRORS, *others)
    if part != "together":
        session.run("pytest", "-m", f"{chosen} and alone", *options)
    if part != "alone":
        session.run("pytest", *THREE_AT_ONCE, "-m", f"{chosen} and not alone", *options)


@nox.session(default=False)
def browser(session: nox.Session) -> None:
    """Look at every page of ours as people do: in a real browser, Debian's Chromium."""
    session.install(".", *groups("browser"))
    session.run("pytest", "tests/browser", *session.posargs)


@nox.session(default=False)
@nox.parametrize("program", ["airflow", "prefect", "mcp"])
def integrations(session: nox.Session, program: str) -> None:
    """Have Airflow and Prefect themselves run into dead workers, and a client of the Model Context Protocol ask.

    Each in an environment of its own: none bears the others' requirements.
    """
    session.install(f".[{program}]", *groups("tests"), *(groups("prefect") if program == "prefect" else ()))
    session.run("pytest", f"tests/integrations/test_{program}.py", *session.posargs)


@nox.session(default=False)
def lab_natural(session: nox.Session) -> None:
    """Ask about programs that fail for natural reasons, fresh and after an earlier death. It takes half an hour."""
    session.install(".", "dask[dataframe]", *groups("lab"))
    session.run("pytest", "tests/lab/test_natural.py", "-m", "lab", *RETRY_LAB_ERRORS, *session.posargs)


@nox.session(default=False)
def cures(session: nox.Session) -> None:
    """Follow the first suggestion about programs that die of memory, and see whether they then succeed."""
    session.install(".", "dask[array,dataframe]", *groups("lab"))
    session.run("pytest", "tests/sources/test_workload.py", "tests/recorder/test_large_objects.py")
    names = ("test_cures", "test_work_checks", "test_make_it_finish", "test_graph_waits")
    files = [f"tests/lab/{name}.py" for name in names]
    session.run("pytest", *files, "-m", "lab", *RETRY_LAB_ERRORS, *session.posargs)


@nox.session(default=False)
def cures_all(session: nox.Session) -> None:
    """Do so with 42 other programs, without and with the flight recorder; it takes an hour on an idle machine."""
    session.install(".", "dask[array,dataframe]", *groups("lab"))
    for recorder in ((), ("--recorder",)):
        session.run("python", "-m", "tests.lab.variants", *recorder, *session.posargs)


@nox.session(default=False)
def lab_s3(session: nox.Session) -> None:
    """Triage logs on a server that speaks S3, by s3fs. It needs another botocore than boto3 does."""
    session.install(".[triage]", *groups("s3"))
    names = ("test_triage_s3", "test_triage_s3_kill", "test_triage_s3_troubles")
    files = [f"tests/lab/{name}.py" for name in names]
    session.run("pytest", *files, "-m", "lab", *session.posargs)


@nox.session(default=False)
def lab_slurm(session: nox.Session) -> None:
    """Let a real Slurm end real workers. Needs root and Debian's packages of Slurm; takes three minutes."""
    session.install(".", "dask-jobqueue", *groups("lab"))
    session.run("pytest", "tests/lab_slurm", "-m", "lab", *session.posargs)


@nox.session(default=False)
def lab_kubernetes(session: nox.Session) -> None:
    """Kill real workers in pods of a real Kubernetes, compiled from Debian's source. Needs root, takes minutes.

    The compiling has no time limit, and goes on where it was interrupted. Set
    ``WORKERDIAG_K8S_BIN`` to a folder that keeps its result.
    """
    session.install(".[kubernetes]", *groups("lab"))
    session.run("python", "-m", "lab_kubernetes", "build", env={"PYTHONPATH": "tests"})
    session.run("pytest", "tests/lab_kubernetes", "-m", "lab", *session.posargs)


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Try inputs that nobody would write: mutated logs, exceptions, clients, bundles, black boxes and rules.

    For two minutes, or ``-- --minutes N``. Inputs with which something went wrong are kept in
    ``--folder``; moved to ``tests/fuzz`` they are tried again by the tests.
    """
    session.install(".", *groups("tests"))
    session.run("python", "-m", "fuzz", *session.posargs, env={"PYTHONPATH": "tools"})


@nox.session(default=False)
def peers(session: nox.Session) -> None:
    """Ask about deaths that others wrote: distributed's own failure tests, of a checkout (``-- CHECKOUT``).

    Its tests are in neither wheel nor sdist. The newest release is what runs; the checkout stays as
    it is. Takes half an hour; ``-- CHECKOUT --sample 10`` some minutes. ``--keep FOLDER`` keeps the
    answers, and with ``--again`` the same evidence is judged anew in a minute.
    """
    session.install("--upgrade", ".", "distributed", *groups("peers"))
    session.run("python", "-m", "peers", *session.posargs, env={"PYTHONPATH": "tools"})


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Hold speed, memory and accuracy against the goals: one table, printed.

    Folders of labelled deaths may follow ``--``; accuracy is measured on each. It takes half an hour, and
    Debian's Chromium.
    """
    session.install(".", *groups("bench", "browser", "clouds"))
    session.run("python", "benchmarks/run.py", *session.posargs)


@nox.session(default=False)
def wording(session: nox.Session) -> None:
    """Hold the releases that rules claim to be worded for against released wheels: one by one, from pip.

    Those since 2024.8.1; with ``-- --since 2.2.0`` all that log text is claimed for. ``-- --write``
    also writes ``docs/wording.md``; ``-- --cache FOLDER`` keeps the wheels.
    """
    session.install(".", "pip")
    wheels = Path(session.create_tmp(), "wheels")
    session.run("python", "tools/wording.py", "--cache", str(wheels), *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build ``build/site``: examples run, links lead somewhere, nothing is loaded from another host.

    What ``docs/write_*.py`` make from rules, settings, commands and a recorded death is in it.
    """
    session.install(".", *groups("docs"))
    for script in sorted(Path("docs").glob("write_*.py")):
        session.run("python", str(script))
    session.run("pytest", "-n", "2", "tests/test_docs.py", *session.posargs)
    shutil.rmtree("build/site", ignore_errors=True)
    session.run("sphinx-build", "-q", "-W", "--keep-going", "-E", "-b", "html", "docs", "build/site")
    session.run("python", "docs/check_site.py", "build/site")


@nox.session
def build(session: nox.Session) -> None:
    """Build what would be released, the wheel from the sdist, and see that both are whole."""
    dist = Path(session.create_tmp(), "dist")
    shutil.rmtree(dist, ignore_errors=True)
    session.install("build")
    session.run("python", "-m", "build", "--outdir", str(dist), silent=True)
    (wheel,) = dist.glob("*.whl")
    if missing := due_in_wheel() - set(zipfile.ZipFile(wheel).namelist()):
        session.error(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    session.install(str(wheel))
    with session.chdir(dist):  # away from the checkout, so that its files cannot help
        session.run("workerdiag", "knowledge", "list", silent=True)
        session.run("dask", "explain", "--help", silent=True)


def due_in_wheel() -> set[str]:
    """Names that a wheel of this checkout must hold."""
    folders = {Path("src/workerdiag"): "workerdiag", Path("knowledge"): "workerdiag/knowledge"}
    return {"workerdiag/knowledge.pickle"} | {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for folder, name in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def groups(*names: str) -> tuple[str, ...]:
    """The requirements of dependency groups of pyproject.toml."""
    return nox.project.dependency_groups(PYPROJECT, *names)
