"""
What to change: the mitigations of a cause, with the numbers of this very death.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from workerdiag.model.diagnosis import Advice, Match
from workerdiag.model.rules import CAPTURE_PLACEHOLDERS, MEMORY_PLACEHOLDERS, Cause, Mitigation
from workerdiag.model.vocabulary import Deployment
from workerdiag.redaction.secrets import redact_text
from workerdiag.scoring.cluster_setup import UNKNOWN_SETUP, ClusterSetup
from workerdiag.scoring.findings import crash_placeholders
from workerdiag.scoring.memory_numbers import MemoryNumbers

_LONGEST = 200
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
#: Libraries of C and of Python itself, in which a fault shows but is not.
_C_LIBRARY = re.compile(r"(?:libc|libm|libpthread|ld-linux[\w-]*|libpython[\d.]*|libstdc\+\+|libgcc_s)[-.]")
#: What stands for a number that is not known, where its name says nothing to whoever types it.
_BLANKS = {name: "size" for name in MEMORY_PLACEHOLDERS if name not in ("percent", "growth")}
#: Where nobody types this command, because the deployment starts the workers itself.
_WORKER_COMMAND = re.compile(r"\bdask[ -]worker\b")
#: Rules write examples for Slurm; this is in those whose options are Slurm's own, and not dask-jobqueue's.
_SLURM_CLASS = "SLURMCluster("
_OF_SLURM = re.compile(r"\b(?:job_extra_directives|job_directives_skip|account)=|\bSLURM_")
#: What HTCondorCluster has no options for.
_OF_QUEUES = re.compile(r"\b(?:queue|walltime)=")
_STARTS_WORKERS: frozenset[Deployment] = frozenset({"coiled", "local"})


def mitigations(
    cause: Cause, numbers: MemoryNumbers, matches: Sequence[Match], setting: ClusterSetup = UNKNOWN_SETUP
) -> tuple[Advice, ...]:
    """
    The mitigations of *cause* that apply, in order, in the terms of the deployment at hand.

    A sentence whose number is not known is left out.
    """
    words = {key: value for key, value in numbers.words.items() if value} | crash_placeholders(matches)
    sign_names = {match.sign for match in matches if match.owner == cause.id}
    for captures in (match.captures for match in reversed(matches) if match.captures):
        words |= {
            key: redact_text(captures[key])[:_LONGEST]  # a secret that is cut in two is harder to know
            for key in CAPTURE_PLACEHOLDERS
            if captures.get(key)
        }
    if _C_LIBRARY.match(words.get("module", "")):  # the fault is in whatever called it
        del words["module"]
    fitting = [each for each in cause.mitigations if not each.signs or sign_names & set(each.signs)]
    return applicable_advice(fitting, words, setting)


def applicable_advice(
    advice: Iterable[Mitigation], words: Mapping[str, str], setting: ClusterSetup
) -> tuple[Advice, ...]:
    """
    Those of *advice* that make sense in *setting*, filled with *words* and what is known of the cluster.
    """
    words = {**words, **setting.words}
    return tuple(
        Advice(
            do=do,
            when=fill_text(each.when, words),
            cost=fill_text(each.cost, words),
            example=fill_example(_for_batch_system(_example(each, setting.deployment), setting), words),
        )
        for each in advice
        if _applies(each, words, setting.deployment) and (do := fill_text(each.do, words))
    )


def _applies(advice: Mitigation, words: Mapping[str, str], deployment: Deployment | None) -> bool:
    if advice.deployments and deployment not in advice.deployments:
        return False
    return words.keys() >= set(advice.requires) and not words.keys() & set(advice.superseded_by)


def _example(advice: Mitigation, deployment: Deployment | None) -> str:
    """
    What is typed on that deployment; nothing where it would be a command that nobody types there.
    """
    if deployment and deployment in advice.examples:
        return advice.examples[deployment]
    if deployment in _STARTS_WORKERS and _WORKER_COMMAND.search(advice.example):
        return ""
    return advice.example


def _for_batch_system(example: str, setting: ClusterSetup) -> str:
    """
    An example for Slurm with the class of the cluster at hand, where its options are those of all.
    """
    if setting.jobqueue_class is None or _OF_SLURM.search(example):
        return example
    if setting.jobqueue_class == "HTCondorCluster" and _OF_QUEUES.search(example):
        return example
    return example.replace(_SLURM_CLASS, f"{setting.jobqueue_class}(")


@lru_cache(maxsize=2000)  # of the rules' texts
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"(?<=[.!?])\s+", text.strip()))


def fill_text(text: str, words: Mapping[str, str]) -> str:
    """
    *text* with its ``{numbers}``; sentences (or halves after a colon) with an unknown one are dropped.
    """
    sentences = []
    for sentence in _sentences(text):
        filled_sentence = _fill_sentence(sentence, words)
        if filled_sentence is None and ":" in sentence:
            filled_sentence = _fill_sentence(sentence.rpartition(":")[0] + ".", words)
        if filled_sentence:
            sentences.append(filled_sentence)
    return " ".join(sentences)


def fill_example(text: str, words: Mapping[str, str]) -> str:
    """
    An example with its numbers; one that is not known is a place to fill in: ``<port>``, ``<size>``.

    What comes from logs and clusters is quoted for a shell.
    """

    def typed(found: re.Match[str]) -> str:
        value = _without_blanks(words.get(found[1]))
        return shlex.quote(value) if value else f"<{_BLANKS.get(found[1], found[1])}>"

    return _PLACEHOLDER.sub(typed, text)


def _fill_sentence(sentence: str, words: Mapping[str, str]) -> str | None:
    if "{" not in sentence:  # as most are
        return sentence
    if any(name not in words for name in _PLACEHOLDER.findall(sentence)):
        return None
    return _PLACEHOLDER.sub(lambda found: words[found[1]], sentence)


def _without_blanks(value: str | None) -> str | None:
    """
    Sizes without the blank, as configuration wants them: ``1.50GiB``.
    """
    return value.replace(" ", "") if value else None
