"""``workerdiag watch status|confirm|silence|unsilence|resend``: what a watcher's state file says, and silences."""

from __future__ import annotations

import getpass
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from workerdiag.cli.commands import EXIT_NOT_OK, EXIT_OK, UnusableError, command, load_checked_rulebook
from workerdiag.cli.knowledge import similar_ids
from workerdiag.cli.terminal import warn, wrapped
from workerdiag.cli.watch_options import state_option, state_path
from workerdiag.model.vocabulary import DeliveryState
from workerdiag.rendering.wording import format_percent, pluralize
from workerdiag.units import format_duration, format_time

if TYPE_CHECKING:
    from workerdiag.watch.deliveries import SinkStatus, StoredDelivery
    from workerdiag.watch.store import Store
    from workerdiag.watch.watched_case import WatchedCase

#: At most this many closed cases, and deliveries that were given up, are listed.
_MAX_OVER, _MAX_DEAD = 5, 10
_CASE_ID = re.compile("[0-9a-f]{12}")
#: A sink that needs longer for a notice, in seconds, is said to.
_LONG_S = 60.0
_STATES: Mapping[DeliveryState, str] = {
    "sent": "sent",
    "pending": "waiting",
    "sending": "being sent",
    "dead": "given up",
}


def _open(state: str | None) -> Store:
    from workerdiag.watch.store import Store

    return Store.open(state_path(state), must_exist=True)


@command(
    "workerdiag watch status",
    "workerdiag watch status --state prod.db",
)
@state_option
def status(state: str | None) -> int:
    """Say who watches, and list cases and sinks.

    Also silences, and what was not delivered.

    Exit status: 0 somebody watches, sees the cluster, and every sink takes what it is given; 1 not so;
    2 the state file cannot be used.
    """
    with closing(_open(state)) as store:
        problems = list(_problems(store, time.time()))
        for line in _status_lines(store, time.time()):
            click.echo(line)
    for each in problems:
        warn(each)
    return EXIT_NOT_OK if problems else EXIT_OK


@command(
    "workerdiag watch silence 3f9a1c2b4d5e --for 4h --reason 'the loader is being mended'",
    "workerdiag watch silence 'nanny.*' --until 2026-11-23T08:00:00+01:00 --reason 'known, DASK-123'",
)
@click.argument("matches", metavar="CASE")
@click.option("--for", "length", metavar="DURATION", help="How long, such as 4h.")
@click.option("--until", metavar="TIME", help="Until when, a time with a zone.")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for those who wonder later.")
@state_option
def silence(matches: str, length: str | None, until: str | None, reason: str, state: str | None) -> None:
    """Hold back the notices of a case for a while.

    CASE is the id or the key of a case, the id of a cause, or the name of a cluster; or a pattern, such as
    'nanny.*'. What was held back is in the next digest.
    """
    from workerdiag.watch.silences import new_silence, parse_until

    end = length or until
    if end is None or (length and until):
        raise click.UsageError("Give either --for DURATION or --until TIME.")
    now = time.time()
    made = new_silence(matches, until=parse_until(end, now), reason=reason, now=now)
    with closing(_open(state)) as store:
        store.policy_table.add_silence(made)
        known = {name for case in store.cases() for name in (case.id, case.key, case.cluster)}
    click.echo(f"Silence {made.id} until {format_time(made.until)} UTC")
    _warn_of_unknown_cause(matches)
    if _CASE_ID.fullmatch(matches) and matches not in known:
        warn(f"no case is called {matches}; `workerdiag watch status` lists them")


def _warn_of_unknown_cause(matches: str) -> None:
    """Warn if *matches* begins as the id of a cause and fits none."""
    family, dot, _ = matches.partition(".")
    ids = [each.id for each in load_checked_rulebook(()).causes] if dot else []
    is_of_family = any(each.startswith(f"{family}.") for each in ids)
    if is_of_family and not any(fnmatchcase(each, matches) for each in ids):
        warn(f"no cause is called {matches}{similar_ids(matches, ids)}")


@command(
    "workerdiag watch confirm 3f9a1c2b4d5e",
    "workerdiag watch confirm 3f9a1c2b4d5e --by 'Ada, DASK-123'",
)
@click.argument("case_id", metavar="CASE")
@click.option("--by", metavar="NAME", help="Who is at work on it. By default the user of this process.")
@state_option
def confirm(case_id: str, by: str | None, state: str | None) -> None:
    """Say that somebody is at work on a case.

    Nobody is reminded of it any more; that it gets worse, changes or ends is told as before.
    """
    with closing(_open(state)) as store:
        case = store.confirm(case_id, by or _user())
    click.echo(f"Case {case.id}: {case.progress.confirmed_by} is at work on it")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # containers have users without names
        return f"user {os.getuid()}"


@command("workerdiag watch unsilence 1f2e3d4c")
@click.argument("silence_id", metavar="ID")
@state_option
def unsilence(silence_id: str, state: str | None) -> None:
    """End a silence at once; `workerdiag watch status` lists them."""
    with closing(_open(state)) as store:
        if not store.policy_table.remove_silence(silence_id):
            raise UnusableError(f"there is no silence {silence_id} (workerdiag watch status lists them)")
    click.echo(f"Ended silence {silence_id}")


@command(
    "workerdiag watch resend",
    "workerdiag watch resend --sink 'slack:#dask'",
)
@click.argument("delivery_id", metavar="[ID]", required=False)
@click.option("--sink", metavar="NAME", help="Only what is for this sink.")
@state_option
def resend(delivery_id: str | None, sink: str | None, state: str | None) -> None:
    """Send again what was given up.

    That is one notice, those for a sink, or all; `workerdiag watch status` lists them. The watcher that
    runs, or the next one, sends them under their old ids.
    """
    with closing(_open(state)) as store:
        count = store.outbox.resend_dead(delivery_id, sink=sink)
    if not count:
        raise UnusableError("there is no such notice that was given up (workerdiag watch status lists them)")
    click.echo(f"{pluralize(count, 'notice')} will be sent again")


def _problems(store: Store, now: float) -> Iterator[str]:
    from workerdiag.watch.cases import BLIND_KEY
    from workerdiag.watch.lease import lease_holder

    holder = lease_holder(store.file)
    if holder is None or holder.expires_at <= now or holder.is_seen_running() is False:
        yield "nobody watches (workerdiag watch ADDRESS, with the same --state, begins)"
    for case in store.cases():
        if case.key == BLIND_KEY and case.is_open:
            yield f"the watcher does not see {case.cluster}: {case.title}"
    if dead := len(store.deliveries("dead")):
        yield f"{pluralize(dead, 'notice')} could not be delivered"


def _status_lines(store: Store, now: float) -> Iterator[str]:
    from workerdiag.watch.lease import lease_holder

    yield from _field("State", store.file.name)
    holder = lease_holder(store.file)
    yield from _field("Watcher", holder.describe() if holder else "none")
    for cluster, seen_at in store.clusters().items():
        ago = format_duration(max(0.0, now - seen_at))
        yield from _field("Cluster", f"{cluster}, read {ago} ago ({format_time(seen_at)} UTC)")
    cases = store.cases()
    current = [each for each in cases if each.is_open]
    over = [each for each in cases if not each.is_open][-_MAX_OVER:]
    for name, some in (("Open", current), ("Over", over)):
        for case in some:
            yield from _case_lines(name, case)
    if not cases:
        yield from _field("Cases", "none")
    for sink in store.outbox.sinks():
        yield from _field("Sink", _sink_text(sink, now))
    for each in store.deliveries("dead")[-_MAX_DEAD:]:
        yield from _field("Given up", _dead_text(each))
    for silent in store.policy_table.silences():
        if silent.until > now:
            until = format_time(silent.until)
            yield from _field("Silence", f"{silent.id}: {silent.matches} until {until} UTC: {silent.reason}")


def _field(name: str, text: str) -> list[str]:
    head = f"{name:<9} "
    return wrapped(text, first=head, rest=" " * len(head))


def _case_lines(name: str, case: WatchedCase) -> Iterator[str]:
    sure = f" ({format_percent(case.probability)})" if case.cause is not None else ""
    died = f", {pluralize(case.death_count, 'death')}" if case.death_count else ""
    hosts = f" on {pluralize(len(case.hosts), 'host')}" if len(case.hosts) > 1 else ""
    last = format_time(case.last_death_at)
    yield from _field(name, f"{case.id}  {case.state} on {case.cluster}{died}{hosts}, last {last} UTC")
    yield from _field("", f"{case.title}{sure}")
    if case.is_open and case.progress.confirmed_by:
        yield from _field("", f"{case.progress.confirmed_by} is at work on it")


def _sink_text(sink: SinkStatus, now: float) -> str:
    said = [f"{sink.counts[state]} {text}" for state, text in _STATES.items() if sink.counts.get(state)]
    hangs = ""
    if sink.sending_since is not None and now - sink.sending_since >= _LONG_S:
        for_s = format_duration(now - sink.sending_since)
        hangs = f"; it has been at one notice for {for_s}, since {format_time(sink.sending_since)} UTC"
    problem = f"; last problem: {sink.problem}" if sink.problem else ""
    return f"{sink.name}: {', '.join(said)}{hangs}{problem}"


def _dead_text(delivery: StoredDelivery) -> str:
    title = delivery.notice.title if delivery.notice is not None else delivery.id
    tried = f"{delivery.sink}, {pluralize(delivery.attempts, 'attempt')}"
    return f"{delivery.id}  {tried}: {title}: {delivery.problem}"
