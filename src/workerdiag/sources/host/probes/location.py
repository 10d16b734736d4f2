"""Reads the machine, container and job that this process runs in."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

#: Variables that name platforms, clusters, jobs and pods. Each is listed individually, because others hold
#: secrets (SLURM_JWT, DASK_COILED__TOKEN).
NAMES = frozenset(
    """
    SLURM_JOB_ID SLURM_JOBID SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_CLUSTER_NAME SLURM_SUBMIT_DIR
    PBS_JOBID PBS_O_WORKDIR PBS_SERVER LSB_JOBID LSB_JOBINDEX LS_SUBCWD
    JOB_ID SGE_TASK_ID SGE_CELL SGE_ROOT SGE_O_HOST SGE_O_WORKDIR
    OAR_JOB_ID OAR_JOBID OAR_WORKDIR HTCONDOR_JOBID CONDOR_ID FLUX_JOB_ID COBALT_JOBID MOAB_JOBID
    KUBERNETES_SERVICE_HOST HOSTNAME POD_NAME POD_NAMESPACE NODE_NAME MY_POD_NAME MY_POD_NAMESPACE
    DASK_WORKER_NAME DASK_CLUSTER_NAME DASK_SCHEDULER_ADDRESS DASK_GATEWAY_CLUSTER_NAME DASK_GATEWAY_WORKER_NAME
    ECS_CONTAINER_METADATA_URI_V4 AWS_REGION AWS_DEFAULT_REGION AWS_BATCH_JOB_ID EC2_INSTANCE_ID
    GOOGLE_CLOUD_PROJECT CLOUD_RUN_JOB AZ_BATCH_JOB_ID AZUREML_RUN_ID CONTAINER_APP_NAME
    COILED_CLUSTER_ID COILED_CLUSTER_NAME COILED_WORKER_NAME COILED_INSTANCE_ID COILED_WORKSPACE
    DB_CLUSTER_ID YARN_APPLICATION_ID CONTAINER_ID SKEIN_APPLICATION_ID JUPYTERHUB_SERVER_NAME JOURNAL_STREAM
    """.split()
)


def read(request: dict[str, object]) -> dict[str, object]:  # noqa: ARG001  the signature of a probe
    """Return names and ids of this machine, this process and its job; *request* is unused."""
    return {
        "now": time.time(),
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "platform": sys.platform,
        "boot_id": _read_text("/proc/sys/kernel/random/boot_id").strip(),
        "environment": {name: os.environ[name] for name in sorted(NAMES) if _is_a_name(os.environ.get(name))},
        "cgroups": _read_text("/proc/self/cgroup").splitlines()[:40],
    }


def _is_a_name(value: str | None) -> bool:
    return value is not None and 0 < len(value) <= 300 and value.isprintable()


def _read_text(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024)
    except OSError:
        return ""
