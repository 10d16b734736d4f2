"""
Which machine, container and job a process runs in, as the process itself can tell.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

#: Names of platforms, clusters, jobs and pods. No name here holds a secret (SLURM_JWT does, and
#: DASK_COILED__TOKEN), so each is listed by itself.
NAMES = frozenset(
    """
    SLURM_JOB_ID SLURM_JOBID SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_CLUSTER_NAME SLURM_JOB_NAME
    SLURM_JOB_NODELIST SLURM_JOB_PARTITION SLURM_JOB_USER SLURM_NODELIST SLURM_NODEID SLURM_PROCID
    SLURM_LOCALID SLURM_STEP_ID SLURM_STEPID SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURMD_NODENAME
    SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU
    SLURM_RESTART_COUNT SLURM_JOB_START_TIME SLURM_JOB_END_TIME SLURM_HET_JOB_ID SLURM_CONF
    PBS_JOBID PBS_JOBNAME PBS_QUEUE PBS_O_HOST PBS_O_WORKDIR PBS_O_QUEUE PBS_SERVER PBS_ARRAY_ID
    PBS_ARRAYID PBS_ARRAY_INDEX
    PBS_ENVIRONMENT PBS_NODENUM PBS_TASKNUM PBS_WALLTIME PBS_DEFAULT
    LSB_JOBID LSB_JOBINDEX LSB_JOBNAME LSB_QUEUE LSB_BATCH_JID LSB_SUB_HOST LS_SUBCWD LSB_HOSTS LSF_ENVDIR
    JOB_ID JOB_NAME SGE_TASK_ID SGE_CELL SGE_ROOT SGE_CLUSTER_NAME SGE_O_HOST SGE_O_WORKDIR SGE_ARCH
    QUEUE NHOSTS RESTARTED
    OAR_JOB_ID OAR_JOBID OAR_ARRAY_ID OAR_ARRAY_INDEX OAR_JOB_NAME OAR_WORKDIR OAR_CPUSET
    OAR_JOB_WALLTIME_SECONDS
    _CONDOR_JOB_AD _CONDOR_MACHINE_AD _CONDOR_SLOT _CONDOR_JOB_IWD _CONDOR_SCRATCH_DIR CONDOR_ID
    FLUX_JOB_ID COBALT_JOBID MOAB_JOBID
    KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBERNETES_PORT HOSTNAME
    POD_NAME POD_NAMESPACE POD_IP POD_UID NODE_NAME MY_POD_NAME MY_POD_NAMESPACE MY_NODE_NAME NAMESPACE
    DASK_WORKER_NAME DASK_CLUSTER_NAME DASK_SCHEDULER_ADDRESS DASK_PARENT_ADDRESS DASK_WORKER_POOL
    DASK_GATEWAY_CLUSTER_NAME DASK_GATEWAY_WORKER_NAME
    ECS_CONTAINER_METADATA_URI ECS_CONTAINER_METADATA_URI_V4 ECS_AGENT_URI AWS_EXECUTION_ENV AWS_REGION
    AWS_DEFAULT_REGION AWS_BATCH_JOB_ID AWS_BATCH_JOB_ATTEMPT AWS_BATCH_CE_NAME AWS_BATCH_JQ_NAME
    AWS_LAMBDA_FUNCTION_NAME EC2_INSTANCE_ID
    GOOGLE_CLOUD_PROJECT GCP_PROJECT GCLOUD_PROJECT CLOUDSDK_COMPUTE_ZONE GCE_METADATA_HOST
    CLOUD_RUN_JOB CLOUD_RUN_EXECUTION CLOUD_RUN_TASK_INDEX K_SERVICE K_REVISION
    AZ_BATCH_ACCOUNT_NAME AZ_BATCH_JOB_ID AZ_BATCH_NODE_ID AZ_BATCH_POOL_ID AZ_BATCH_TASK_ID
    AZUREML_RUN_ID AZUREML_ARM_RESOURCEGROUP CONTAINER_APP_NAME CONTAINER_APP_REPLICA_NAME
    COILED_CLUSTER_ID COILED_CLUSTER_NAME COILED_WORKER_NAME COILED_INSTANCE_ID COILED_WORKSPACE
    DATABRICKS_RUNTIME_VERSION DB_CLUSTER_ID DB_CLUSTER_NAME
    YARN_APPLICATION_ID CONTAINER_ID NM_HOST SKEIN_APPLICATION_ID SKEIN_CONTAINER_ID
    JUPYTERHUB_SERVER_NAME INVOCATION_ID JOURNAL_STREAM container
    """.split()
)
#: A name is short; what is longer is something else.
MAX_CHARS = 300
#: What one process is a member of: a dozen controllers of version 1, and version 2.
MAX_GROUPS = 40


def read(request: dict[str, object]) -> dict[str, object]:  # noqa: ARG001  as every probe
    """
    Names and numbers of this machine, this process and its job; *request* is not needed.
    """
    return {
        "now": time.time(),
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "platform": sys.platform,
        "boot_id": _read_text("/proc/sys/kernel/random/boot_id").strip(),
        "environment": {name: os.environ[name] for name in sorted(NAMES) if _is_a_name(os.environ.get(name))},
        "cgroups": _read_text("/proc/self/cgroup").splitlines()[:MAX_GROUPS],
    }


def _is_a_name(value: str | None) -> bool:
    return value is not None and 0 < len(value) <= MAX_CHARS and value.isprintable()


def _read_text(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024)
    except OSError:
        return ""
