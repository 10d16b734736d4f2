"""What we tell people to type exists in the installed release of Dask: options, settings, methods and arguments."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator

import dask.config
import distributed
import yaml
from distributed.cli import dask_scheduler, dask_worker

from workerdiag.rulebook.load import load_rulebook

COMMANDS = {"worker": dask_worker.main, "scheduler": dask_scheduler.main}
CLASSES = {"client": distributed.Client, "cluster": distributed.LocalCluster, "future": distributed.Future}
#: What `LocalCluster` passes on to its workers, and `Client` to the cluster that it starts.
WORKERS = (distributed.LocalCluster, distributed.Nanny, distributed.Worker)
MADE = {"LocalCluster": WORKERS, "Client": (distributed.Client, *WORKERS), "Security": (distributed.Security,)}
#: Of the clusters of dask-jobqueue: a method, and arguments of `scale`.
JOB_SCRIPT, OF_JOBS = "job_script", {"jobs"}


def advised() -> Iterator[tuple[str, str]]:
    """Each example and command of the rules, with whose it is."""
    book = load_rulebook()
    for cause in book.causes:
        for advice in cause.mitigations:
            yield from ((cause.id, text) for text in (advice.example, *advice.examples.values()))
        yield from ((cause.id, step.command) for step in cause.next_steps)
    for landmark in book.landmarks:
        yield from ((landmark.id, step.command) for step in landmark.next_steps)
    for advice in (*book.advice, *book.task_advice):
        yield from (("no cause", text) for text in (advice.example, *advice.examples.values()))


ADVISED = sorted({(owner, text) for owner, text in advised() if text})


def test_options_of_dask_exist():
    """Of `dask worker` and `dask scheduler`, also where a batch system's class passes them on."""
    wrong = []
    for owner, text in ADVISED:
        for kind, rest in re.findall(r"\bdask[ -](worker|scheduler)\b([^;|&\n#\"']*)", text):
            used = re.findall(r"(?<=\s)--[a-z][a-z-]*", rest)
            wrong += [(owner, each) for each in used if each not in options(kind)]
        for listed in re.findall(r"worker_extra_args=\[([^\]]*)\]", text):
            used = re.findall(r"--[a-z][a-z-]*", listed)
            wrong += [(owner, each) for each in used if each not in options("worker")]
    assert wrong == []


def options(kind: str) -> set[str]:
    """The options of one of Dask's commands."""
    params = COMMANDS[kind].params
    return {"--help", *(each for param in params for each in (*param.opts, *param.secondary_opts))}


def test_settings_of_dask_exist():
    """As keys in the code, as variables and in YAML; what a file may add to is a setting with values of its own."""
    wrong = []
    for owner, text in ADVISED:
        keys = re.findall(
            r"[\"']((?:distributed|dataframe|array|optimization|temporary-directory)[\w.-]*)[\"'] ?:", text
        )
        variables = re.findall(r"\bDASK_(?:DISTRIBUTED|DATAFRAME|ARRAY|TEMPORARY_DIRECTORY)\w*(?==)", text)
        keys += [each.removeprefix("DASK_").lower().replace("__", ".") for each in variables]
        keys += list(yaml_keys(text))
        wrong += [(owner, each) for each in keys if not is_setting(each)]
    assert wrong == []


def yaml_keys(text: str) -> Iterator[str]:
    """The keys of Dask's sections, if the text is YAML."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return
    if isinstance(found, dict) and "distributed" in found:
        yield from leaves("distributed", found["distributed"])


def leaves(above: str, value: object) -> Iterator[str]:
    if isinstance(value, dict) and not above.endswith("environ"):
        for name, each in value.items():
            yield from leaves(f"{above}.{name}", each)
    else:
        yield above


def is_setting(key: str) -> bool:
    missing = object()
    return dask.config.get(dask.config.canonical_name(key, dask.config.config), missing) is not missing


def test_methods_and_arguments_of_dask_exist():
    """Of clients, clusters, futures, and of what makes a cluster on this machine."""
    assert [(owner, each) for owner, text in ADVISED for call in calls(text) for each in mistakes(call)] == []


def mistakes(call: ast.Call) -> set[str]:
    """What a call names that the installed release does not have."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        cls, name = CLASSES.get(call.func.value.id), call.func.attr
        if cls is None or name == JOB_SCRIPT:
            return set()
        return unknown(call, getattr(cls, name)) - OF_JOBS if hasattr(cls, name) else {name}
    made = MADE.get(call.func.id, ()) if isinstance(call.func, ast.Name) else ()
    taken = {name for cls in made for name in (*inspect.signature(cls).parameters, *getattr(cls, "__slots__", ()))}
    return {each.arg for each in call.keywords if each.arg} - taken if made else set()


def calls(text: str) -> Iterator[ast.Call]:
    """The calls in each part of *text* that is Python."""
    for part in (text, *text.splitlines(), *re.split(r"[;\n]|   #", text)):
        try:
            with warnings.catch_warnings(action="ignore"):  # what is for a shell has its own escapes
                tree = ast.parse(part.strip())
        except SyntaxError:
            continue
        yield from (each for each in ast.walk(tree) if isinstance(each, ast.Call))


def unknown(call: ast.Call, function: object) -> set[str]:
    """The keyword arguments that the function does not take."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return set()
    return {each.arg for each in call.keywords if each.arg} - parameters.keys()
