"""
The batch systems that dask-jobqueue knows (0.9.0), and how their jobs are recognised.
"""

from __future__ import annotations

import re

from workerdiag.sources.batch.jobs import BatchSystem

SLURM = BatchSystem(
    name="Slurm",
    clusters=("SLURMCluster",),
    variables=("SLURM_JOB_ID", "SLURM_JOBID"),
    number_pattern=re.compile(r"\d{1,12}(?:_\d{1,9})?"),
)
PBS = BatchSystem(
    name="PBS",
    clusters=("PBSCluster", "MoabCluster"),
    variables=("PBS_JOBID",),
    number_pattern=re.compile(r"(?:Moab\.)?\d{1,12}(?:\[\d{0,9}\])?(?:\.[A-Za-z0-9](?:[\w.-]{0,80}))?"),
)
LSF = BatchSystem(
    name="LSF",
    clusters=("LSFCluster",),
    variables=("LSB_JOBID",),
    number_pattern=re.compile(r"\d{1,12}(?:\[\d{1,9}\])?"),
)
GRID_ENGINE = BatchSystem(
    name="Grid Engine",
    clusters=("SGECluster",),
    variables=("JOB_ID",),
    number_pattern=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
    required_variables=("SGE_ROOT", "SGE_CELL", "SGE_TASK_ID", "SGE_O_HOST", "SGE_O_WORKDIR"),
)
HTCONDOR = BatchSystem(
    name="HTCondor",
    clusters=("HTCondorCluster",),
    variables=("HTCONDOR_JOBID", "CONDOR_ID"),
    number_pattern=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
)
OAR = BatchSystem(
    name="OAR",
    clusters=("OARCluster",),
    variables=("OAR_JOB_ID", "OAR_JOBID"),
    number_pattern=re.compile(r"\d{1,12}"),
)
SYSTEMS: tuple[BatchSystem, ...] = (SLURM, PBS, LSF, GRID_ENGINE, HTCONDOR, OAR)
