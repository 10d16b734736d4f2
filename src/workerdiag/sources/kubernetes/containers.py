"""
Which of a pod's containers runs Dask.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workerdiag.sources.kubernetes.fields import mappings_at, text_at

#: Variables that hold a worker's name: of the operator and of Dask Gateway.
WORKER_NAME_VARIABLES = ("DASK_WORKER_NAME", "DASK_GATEWAY_WORKER_NAME")
#: Commands that run a worker or scheduler of Dask, with all their spellings.
_RUNS_DASK = re.compile(
    r"\bdask[-_ ](?:cuda[-_ ])?(?:worker|scheduler|spec)\b|distributed\.cli\.dask_|dask_cuda"
)
_DASK_VARIABLES = (*WORKER_NAME_VARIABLES, "DASK_SCHEDULER_ADDRESS")
_USUAL_NAMES = ("worker", "dask-worker", "scheduler", "dask-scheduler", "dask", "dask-container")


def dask_container(containers: Sequence[dict[str, object]], *, default: str) -> dict[str, object]:
    """
    The one that runs Dask, by its command, variables or name; empty where that is not clear.

    Args:
        containers: As the pod's spec has them.
        default: The one that kubectl shows without being told which; empty: none is named.
    """
    choices = (
        [each for each in containers if _RUNS_DASK.search(" ".join(command_words(each)))],
        [each for each in containers if _variables(each).intersection(_DASK_VARIABLES)],
        [each for each in containers if text_at(each, "name") in _USUAL_NAMES],
        [each for each in containers if text_at(each, "name") == default],
        containers,
    )
    first = next((found for found in choices if found), [])
    return first[0] if len(first) == 1 else {}


def command_words(container: object) -> list[str]:
    """
    Command and arguments of a container.
    """
    lists = [container.get(key) for key in ("command", "args")] if isinstance(container, dict) else []
    return [str(word) for each in lists if isinstance(each, list) for word in each]


def _variables(container: object) -> set[str]:
    return {text_at(each, "name") for each in mappings_at(container, "env")}
