"""Kill a delivering process repeatedly, against a receiver that fails in every way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import frozen

from support import outbox_child
from support.bad_receiver import BadReceiver, is_taken
from support.forking_program import ForkingProgram, moment_of
from support.outbox_child import SINKS, notice_id
from workerdiag.watch.store import Store, delivery_id

#: ``direct``: three cases, with the effects of each death in one transaction. ``rounds``: the watcher's
#: rounds.
Way = Literal["direct", "rounds"]
#: The behaviours of the receiver, by how often of 20 times. It takes all requests but ``error`` and
#: ``limit``.
BEHAVIOURS = ("take",) * 10 + ("late",) * 2 + ("too-late",) * 2 + ("cut",) * 2 + ("error",) * 2 + ("limit",) * 2


@frozen
class Request:
    delivery: str
    notice: str
    sink: str
    attempt: int
    process: int
    #: Receipt of the previous notice.
    last: str
    behaviour: str


def read_request(body: bytes, _headers: Mapping[str, str], behaviour: str) -> Request:
    return Request(**json.loads(body), behaviour=behaviour)


@frozen(kw_only=True)
class KillResult:
    """The result of the kills."""

    notices: int
    kills: int
    #: Deliveries in the state or its journal that never arrived.
    lost: list[str]
    #: Ids that arrived and are not known.
    unknown: list[str]
    #: Number of requests taken although one with that id had been taken before.
    repeats: int
    #: What happened to the previous request, and whether the same process repeated it.
    repeats_after: Counter[str]
    #: Number of these after an answer that the process received: it was killed before it noted the answer.
    repeats_after_answer: int
    #: Repeats by the process that had received the answer: there must be none.
    repeats_without_reason: list[str]
    #: Duplicates at a receiver that drops known ids: there must be none.
    idempotent_repeats: list[str]
    #: Cases and sinks with notices out of order, or without the receipt of the previous notice.
    disordered: list[str]
    behaviours: Counter[str]


def kill_again_and_again(folder: Path, kills: int, *, way: Way) -> KillResult:
    """Start the process and kill it at a random moment, *kills* times, every tenth a new one; then let it finish."""
    state, journal = folder / "state.db", folder / "journal"
    receiver = BadReceiver(
        read=read_request, behaviours=BEHAVIOURS, timeout_s=outbox_child.TIMEOUT_S, retry_after="0.05"
    )
    moment = moment_of(receiver, sending_s=0.4, other_s=0.4)
    with (
        receiver.serving(),
        ForkingProgram(outbox_child.__file__, way, str(state), str(journal), receiver.url) as program,
    ):
        for number in range(kills):
            program.kill_one(moment, str(10**9), is_new=number % 10 == 0)
        receiver.is_kind = True
        program.finish("0")
    return _result(state, journal.read_text(encoding="ascii").split("\n"), receiver.requests, kills, way)


def _result(state: Path, journal: list[str], requests: list[Request], kills: int, way: str) -> KillResult:
    store = Store(state)
    cursor = store.cursor("prod")
    last = cursor.position if cursor else 0
    stored = store.outbox.stored()
    store.close()
    numbers = range(1, last + 1)
    committed = {int(line.split()[1]) for line in journal if line.startswith("committed")}
    wanted = {
        delivery_id(notice_id(way, number), sink): f"{number} to {sink}" for number in numbers for sink in SINKS
    }
    taken = [each for each in requests if is_taken(each.behaviour)]
    effects: dict[str, Request] = {}
    for each in taken:
        effects.setdefault(each.delivery, each)
    arrived = Counter(f"{each.notice} {each.sink}" for each in effects.values())
    answered = {tuple(line.split()[1:]) for line in journal if line.startswith("answered")}
    return KillResult(
        notices=last,
        kills=kills,
        lost=[
            *(f"{number} of the journal" for number in sorted(committed - set(numbers))),
            *(name for id_, name in wanted.items() if id_ not in effects),
            *(each.id for each in stored if each.state != "sent"),
        ],
        unknown=[each.delivery for each in requests if each.delivery not in wanted],
        repeats=len(taken) - len(effects),
        repeats_after=_repeats_after(taken),
        repeats_after_answer=len(answered) - len({id_ for id_, _ in answered}),
        repeats_without_reason=_repeats_by_the_same(journal),
        idempotent_repeats=[name for name, count in arrived.items() if count > 1],
        disordered=list(_disordered(list(effects.values()))),
        behaviours=Counter(each.behaviour for each in requests),
    )


def _repeats_after(taken: list[Request]) -> Counter[str]:
    before: dict[str, Request] = {}
    found: Counter[str] = Counter()
    for each in taken:
        if (earlier := before.get(each.delivery)) is not None:
            who = "the same" if earlier.process == each.process else "the next"
            found[f"{earlier.behaviour}, by {who} process"] += 1
        before[each.delivery] = each
    return found


def _repeats_by_the_same(journal: list[str]) -> list[str]:
    """Return what one process was answered more than once."""
    answers = Counter(line for line in journal if line.startswith("answered"))
    return [line for line, count in answers.items() if count > 1]


def _disordered(effects: list[Request]) -> Iterator[str]:
    cases: dict[tuple[str, str], list[Request]] = {}
    for each in effects:
        cases.setdefault((each.notice.rpartition("-")[0], each.sink), []).append(each)
    for case, found in cases.items():
        names = [each.notice for each in found]
        if names != sorted(names, key=lambda name: int(name.rpartition("-")[2])):
            yield f"{case}: {names}"
        if [each.last for each in found] != ["", *names[:-1]]:
            yield f"{case}: {[(each.notice, each.last) for each in found]}"
