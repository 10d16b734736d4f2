"""Prefect: say in an artifact why Dask's workers died, when a flow run has failed or crashed.

    @flow(on_failure=[on_failure], on_crashed=[on_crashed])
    def total():
        with Client(cluster) as client, workerdiag.explaining(client):
            ...

Hooks of flows run in the process of the flow, those of tasks in one that may have died. A cluster that the
flow itself started is gone by then: ``explaining``, or the client preload ``workerdiag.auto``, finds the
reason before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from workerdiag.integrations.diagnose import diagnose

try:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import ArtifactCreate
except ImportError as problem:
    raise ImportError(
        "the hooks for Prefect need Prefect 3.8 or newer: pip install 'workerdiag[prefect]'", name="prefect"
    ) from problem

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import FlowRun, State

#: Key of the artifact: Prefect shows all of one key as versions of one thing.
ARTIFACT_KEY = "dask-worker-deaths"


async def on_failure(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001
    """Create a Markdown artifact of the flow run, if its exception came from Dask."""
    await _report(flow_run, state)


async def on_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001
    """The same for a flow run that crashed."""
    await _report(flow_run, state)


async def _report(flow_run: FlowRun, state: State[Any]) -> None:
    exc = await state.aresult(raise_on_failure=False)
    if not isinstance(exc, BaseException):
        return
    diagnosis = await asyncio.to_thread(diagnose, exc)
    if diagnosis is None:
        return
    artifact = ArtifactCreate(
        type="markdown",
        key=ARTIFACT_KEY,
        description=diagnosis.summary,
        data=diagnosis.to_markdown(),
        flow_run_id=flow_run.id,
    )
    # In a hook there is no run, outside of which create_markdown_artifact is deprecated.
    async with get_client() as client:
        await client.create_artifact(artifact)
