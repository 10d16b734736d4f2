"""Commands that a report suggests: whatever the values in them are, a shell takes each as one word."""

from __future__ import annotations

import shlex

import pytest

from workerdiag.sources import commands
from workerdiag.sources.kubernetes import api

HOSTILE = ["w'; rm -rf ~ #", "$(id)", "`id`", 'a" b', "a\nb", "a b", "-x", ""]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_command_that_failed_can_be_typed_again(name):
    """It is suggested as it was run."""
    command = ["sacct", "--name", name]
    for problem in (FileNotFoundError(), TimeoutError()):
        remedy = commands.command_gap("slurm", command, problem).remedy.removeprefix("where it is installed: ")
        assert shlex.split(remedy) == command


@pytest.mark.parametrize("name", HOSTILE)
def test_what_kubectl_is_to_be_asked_is_quoted(name):
    """Names of pods, namespaces and users come from the cluster and its server."""
    assert shlex.split(api.kubectl_command(f"pods/{name}/log", "n s")) == [
        "kubectl",
        "-n",
        "n s",
        "logs",
        name,
    ]
    body = b'{"message": "User \\"a\'b$(id)\\" cannot list pods"}'
    refusal = api.http_failure(403, body, verb="list", kind="pods", namespace="n;s", path="pods")
    words = shlex.split(refusal.remedy)
    assert "--user=a'b$(id)" in words
    assert "n;s" in words
