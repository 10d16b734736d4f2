"""
Whom to ask where nobody died and yet work stands still: nannies of workers that are there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from workerdiag.model.evidence import Identity
from workerdiag.model.scene import Place, Scene
from workerdiag.sources.addresses import host_of, identity_of
from workerdiag.sources.cluster import queries
from workerdiag.sources.host.locations import nannies_here
from workerdiag.sources.host.respondents import MOST_RESPONDENTS, Respondent, Subject


async def of_the_living(scene: Scene, *, within_s: float) -> list[Respondent]:
    """
    One nanny of each host, at most four, those of paused workers first.

    Raises:
        TimeoutError: The scheduler does not answer in time; or whatever else it passes on.
    """
    said = await queries.answered(partial(queries.identity, scene.client), within_s=within_s)
    workers: Mapping[str, Any] = said.get("workers") or {}
    found: dict[str | None, Respondent] = {}
    for address in sorted(workers, key=lambda each: (workers[each].get("status") != "paused", each)):
        nanny = workers[address].get("nanny")
        if isinstance(nanny, str) and host_of(nanny) not in found and len(found) < MOST_RESPONDENTS:
            found[host_of(nanny)] = _respondent(address, workers[address])
    return list(found.values())


def _respondent(address: str, said: Mapping[str, Any]) -> Respondent:
    whose = identity_of(worker=address, nanny=said.get("nanny"), name=said.get("name"))
    is_here = whose.nanny in nannies_here()
    asked = Identity(pid=os.getpid() if is_here else None, nanny=whose.nanny, host=host_of(whose.nanny))
    return Respondent(
        place=Place(role="nanny", whose=asked),
        subjects=(Subject(whose=whose, when=None, own=True),),
        of_the_dead=False,
    )
