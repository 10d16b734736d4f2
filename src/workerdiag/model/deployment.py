"""
How a cluster was brought up, as far as advice depends on it.
"""

from __future__ import annotations

from typing import Literal, get_args

#: ``command-line`` is `dask worker` by hand; ``batch`` dask-jobqueue and workers in batch jobs;
#: ``gateway`` Dask Gateway; ``cloud`` dask-cloudprovider (containers and virtual machines).
Deployment = Literal[
    "local",
    "command-line",
    "ssh",
    "batch",
    "mpi",
    "kubernetes",
    "gateway",
    "yarn",
    "cloud",
    "coiled",
]
DEPLOYMENTS: tuple[Deployment, ...] = get_args(Deployment)


def as_deployment(name: object) -> Deployment | None:
    """
    *name* as a deployment; None if it is not the name of one.
    """
    return next((each for each in DEPLOYMENTS if each == name), None)
