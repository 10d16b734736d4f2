"""
Whom to ask where nobody died and yet work stands still: nannies of workers that are there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene
from workerdiag.sources.addresses import host_of, identity_of
from workerdiag.sources.cluster import queries
from workerdiag.sources.host.locations import local_nannies
from workerdiag.sources.host.respondents import MAX_RESPONDENTS, Respondent, Subject


async def live_respondents(scene: Scene, deadline: Deadline) -> list[Respondent]:
    """
    One nanny of each host, at most four, those of paused workers first.

    Raises:
        TimeoutError: The scheduler does not answer in time; or whatever else it passes on.
    """
    identity = await queries.answer_in_time(partial(queries.fetch_identity, scene.client), deadline)
    workers: Mapping[str, Any] = identity.get("workers") or {}
    found: dict[str | None, Respondent] = {}
    for address in sorted(workers, key=lambda each: (workers[each].get("status") != "paused", each)):
        nanny = workers[address].get("nanny")
        if isinstance(nanny, str) and host_of(nanny) not in found and len(found) < MAX_RESPONDENTS:
            found[host_of(nanny)] = _make_respondent(address, workers[address])
    return list(found.values())


def _make_respondent(address: str, worker: Mapping[str, object]) -> Respondent:
    identity = identity_of(worker=address, nanny=worker.get("nanny"), name=worker.get("name"))
    is_here = identity.nanny in local_nannies()
    respondent_identity = Identity(
        pid=os.getpid() if is_here else None, nanny=identity.nanny, host=host_of(identity.nanny)
    )
    return Respondent(
        place=Location(role="nanny", identity=respondent_identity),
        subjects=(Subject(identity=identity, when=None, own=True),),
        is_about_dead=False,
    )
