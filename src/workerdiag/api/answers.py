"""Diagnoses for the exceptions of one client, made in its event loop one after the other, each within its time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from workerdiag.api.warm_up import import_all, yielding

if TYPE_CHECKING:
    from workerdiag.api.diagnosis import Diagnosis


class Answers:
    """Asks `explain` on behalf of one client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._turn = asyncio.Lock()

    async def ask(self, exc: BaseException | None, until_s: float) -> Diagnosis:
        """Return the diagnosis of *exc*, or of a standstill, by *until_s* on the clock of the loop.

        Raises TimeoutError if there is no time, or more time might have helped.
        """
        async with self._turn:
            with yielding():
                return await self._explain(exc, until_s)

    async def _explain(self, exc: BaseException | None, until_s: float) -> Diagnosis:
        await asyncio.to_thread(import_all)
        from workerdiag.api.explain import explain

        left_s = until_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise TimeoutError
        diagnosis: Diagnosis = await explain(exc, self._client, timeout=left_s)
        if self._client.status == "running" and _is_cut_short(diagnosis):
            raise TimeoutError
        return diagnosis


def _is_cut_short(diagnosis: Diagnosis) -> bool:
    """Whether more time might have helped: the cause is unknown and the cluster was not read to the end."""
    return diagnosis.outcome == "unknown" and any(
        gap.reason == "timed-out" and gap.place != "other" for gap in diagnosis.gaps
    )
