"""``workerdiag watch``: follow a cluster, and say why its workers die; read and change its state file."""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workerdiag.cli.commands import (
    EXIT_NOT_OK,
    EXIT_OK,
    SafeGroup,
    UnusableError,
    command,
    format_option,
    is_colored,
    note,
    warn,
    wrapped,
)
from workerdiag.deadline import Deadline
from workerdiag.model.vocabulary import DeliveryState
from workerdiag.rendering.wording import format_percent, pluralize
from workerdiag.units import format_duration, format_time
from workerdiag.watch.sinks import SHIPPED, sinks_of

if TYPE_CHECKING:
    from workerdiag.watch.case import WatchedCase
    from workerdiag.watch.store import SinkStatus, Store
    from workerdiag.watch.watcher import Watcher


def sink_options(command: Callable[..., object]) -> Callable[..., object]:
    """One option for each kind of sink; each may be repeated."""
    for kind in reversed(SHIPPED):
        option = click.option(f"--{kind.name}", multiple=True, metavar=kind.metavar, help=kind.help)
        command = option(command)
    return command


state_option = click.option(
    "--state",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The watcher's state file. By default ~/.local/state/workerdiag/watch.db.",
)


def state_path(given: str | None) -> Path:
    """The state file: the given one, else that of this user (XDG Base Directory Specification)."""
    if given is not None:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path("~/.local/state").expanduser()
    return folder / "workerdiag" / "watch.db"


def make_state_folder(given: str | None) -> Path:
    """The state file, after its folder was made if it is the default one."""
    path = state_path(given)
    if given is None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise UnusableError(f"cannot make {path.parent}: {problem.strerror}; give --state FILE") from None
    return path


#: A sink that takes longer for one notice, in seconds, is reported as hanging.
_LONG_S = 60.0
_STATES: Mapping[DeliveryState, str] = {
    "sent": "sent",
    "pending": "waiting",
    "sending": "being sent",
    "dead": "failed",
}


def _open(state: str | None) -> Store:
    from workerdiag.watch.store import Store

    return Store(state_path(state), must_exist=True)


@command("workerdiag watch status", "workerdiag watch status --state prod.db")
@state_option
def status(state: str | None) -> int:
    """Show the watcher, cases and sinks.

    Also lists the notices that could not be delivered.

    Exit status: 0 a watcher runs, sees the cluster, and every sink works; 1 otherwise; 2 the state file cannot
    be used.
    """
    with closing(_open(state)) as store:
        problems = list(_problems(store))
        for line in _status_lines(store, time.time()):
            click.echo(line)
    for each in problems:
        warn(each)
    return EXIT_NOT_OK if problems else EXIT_OK


@command("workerdiag watch resend", "workerdiag watch resend --sink 'slack:#dask'")
@click.argument("delivery_id", metavar="[ID]", required=False)
@click.option("--sink", metavar="NAME", help="Only deliveries to this sink.")
@state_option
def resend(delivery_id: str | None, sink: str | None, state: str | None) -> None:
    """Send notices again that could not be delivered.

    That is one notice, those for a sink, or all; `workerdiag watch status` lists them. The running watcher, or
    the next one, sends them with their old ids.
    """
    with closing(_open(state)) as store:
        count = store.outbox.resend_dead(delivery_id, sink=sink)
    if not count:
        raise UnusableError("there is no such undelivered notice (workerdiag watch status lists them)")
    click.echo(f"{pluralize(count, 'notice')} will be sent again")


def _problems(store: Store) -> Iterator[str]:
    from workerdiag.incidents import BLIND_KEY

    if store.file.watcher() is None:
        yield "no watcher is running (start one: workerdiag watch ADDRESS, with the same --state)"
    for case in store.cases():
        if case.key == BLIND_KEY and case.is_open:
            yield f"the watcher does not see {case.cluster}: {case.what}"
    if dead := len(store.outbox.stored("dead")):
        yield f"{pluralize(dead, 'notice')} could not be delivered"


def _status_lines(store: Store, now: float) -> Iterator[str]:
    yield from _field("State", store.file.name)
    yield from _field("Watcher", store.file.watcher() or "none")
    for cluster, seen_at in store.clusters().items():
        ago = format_duration(max(0.0, now - seen_at))
        yield from _field("Cluster", f"{cluster}, read {ago} ago ({format_time(seen_at)} UTC)")
    cases = store.cases()
    current = [each for each in cases if each.is_open]
    over = [each for each in cases if not each.is_open][-5:]
    for name, some in (("Open", current), ("Over", over)):
        for case in some:
            yield from _case_lines(name, case)
    if not cases:
        yield from _field("Cases", "none")
    for sink in store.outbox.sinks():
        yield from _field("Sink", _sink_text(sink, now))
    for each in store.outbox.stored("dead")[-10:]:
        title = each.notice.title if each.notice is not None else each.id
        tried = f"{each.sink}, {pluralize(each.attempts, 'attempt')}"
        yield from _field("Failed", f"{each.id}  {tried}: {title}: {each.problem}")


def _field(name: str, text: str) -> list[str]:
    head = f"{name:<9} "
    return wrapped(text, first=head, rest=" " * len(head))


def _case_lines(name: str, case: WatchedCase) -> Iterator[str]:
    sure = f" ({format_percent(case.probability)})" if case.cause is not None else ""
    died = f", {pluralize(case.death_count, 'death')}" if case.death_count else ""
    hosts = f" on {pluralize(len(case.hosts), 'host')}" if len(case.hosts) > 1 else ""
    last = format_time(case.last_death_at)
    yield from _field(name, f"{case.id}  {case.state} on {case.cluster}{died}{hosts}, last {last} UTC")
    yield from _field("", f"{case.what}{sure}")


def _sink_text(sink: SinkStatus, now: float) -> str:
    said = [f"{sink.counts[state]} {text}" for state, text in _STATES.items() if sink.counts.get(state)]
    hangs = ""
    if sink.sending_since is not None and now - sink.sending_since >= _LONG_S:
        for_s = format_duration(now - sink.sending_since)
        hangs = f"; it has been sending one notice for {for_s}, since {format_time(sink.sending_since)} UTC"
    problem = f"; last problem: {sink.problem}" if sink.problem else ""
    return f"{sink.name}: {', '.join(said)}{hangs}{problem}"


#: The command that ``workerdiag watch ADDRESS`` means.
_START = "start"
#: Seconds between two looks whether something failed.
_LOOK_S = 1.0
#: Seconds to wait for a scheduler that was never seen.
_CONNECT_S = 30.0


def notice_lines(notice: WatchedCase) -> Iterator[str]:
    """Time and reason of a notice, its title, the rest of it, and an empty line."""
    yield _styled(f"{format_time(notice.at)} UTC  {notice.reason}", dim=True)
    title, *others = notice.text.splitlines() or [notice.title]
    color = {"resolved": "green", "blind": "yellow"}.get(notice.reason)
    for line in wrapped(title):
        yield _styled(line, bold=True, fg="red" if notice.reason in ("new", "recurring", "escalating") else color)
    for each in others:
        yield from wrapped(each, first="  ", rest="    ")
    yield ""


def _styled(line: str, *, bold: bool = False, dim: bool = False, fg: str | None = None) -> str:
    return click.style(line, bold=bold or None, dim=dim or None, fg=fg) if is_colored() else line


class _WatchGroup(SafeGroup):
    """A group whose first argument may be an address in place of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of an address may stand before it."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [_START, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments; what is no command is an address."""
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        if args[0].startswith(("http://", "https://")):
            what = "is a dashboard; give the scheduler's address, such as tcp://10.0.0.1:8786"
            raise click.UsageError(f"{args[0]} {what}", ctx)
        if re.fullmatch(r"\w+", args[0]) and not os.path.lexists(args[0]):  # neither an address nor a file
            near = difflib.get_close_matches(args[0], self.commands)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            what = "is not a command, an address (tcp://10.0.0.1:8786) or a scheduler file."
            raise click.UsageError(f"{args[0]!r} {what}{hint}", ctx)
        return super().resolve_command(ctx, [_START, *args])

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Describe what an address means, then the commands."""
        start = self.commands[_START]
        start.format_usage(ctx, formatter)
        start.format_help_text(ctx, formatter)
        start.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
        start.format_epilog(ctx, formatter)


@click.group(cls=_WatchGroup, context_settings={"help_option_names": ["-h", "--help"]})
def watch() -> None:
    """Follow a cluster, and say why its workers die."""


@command(
    "workerdiag watch tcp://10.0.0.1:8786",
    "workerdiag watch tcp://10.0.0.1:8786 --slack '#dask'",
    "workerdiag watch scheduler.json --name prod --state prod.db --format json",
    "workerdiag watch status",
    name=_START,
    group=watch,
    hidden=True,
)
@click.argument("address")
@sink_options
@state_option
@click.option("--bundles", metavar="FOLDER", help="Save a death bundle of each case in this folder.")
@click.option("--name", metavar="NAME", help="Name of the cluster in notices. By default its address.")
@format_option("text", "json", text="How to print notices; json is one object per line.")
def start(
    address: str, state: str | None, bundles: str | None, name: str | None, form: str, **sinks: tuple[str, ...]
) -> int:
    """Follow a cluster, and say why its workers die: here, and wherever the options say.

    ADDRESS is that of the scheduler, or the path of a scheduler file, which is read again each time.
    Secrets come from the environment: SLACK_TOKEN, WORKERDIAG_WEBHOOK_SECRET. A value env:NAME is read from
    the variable NAME.

    Exit status: 0 the cluster was closed, or SIGTERM; 2 bad usage, a scheduler that was never seen, or a
    state file that cannot be used.
    """
    from workerdiag.cli.explain import quiet_dask
    from workerdiag.watch.watcher import watch as start_watching

    given = sinks_of(sinks)
    path = make_state_folder(state)
    with (
        quiet_dask(),
        _ended_by_sigterm(),
        start_watching(address, *given, state=path, bundles=bundles, name=name) as watcher,
    ):
        click.echo(f"Watching {name or address}; the state is in {path}", err=True)
        _follow(watcher, address, form)
    return EXIT_OK


def _follow(watcher: Watcher, address: str, form: str) -> None:
    known = watcher.has_history()
    patience = Deadline.after(_CONNECT_S)
    warned: set[tuple[str, str]] = set()
    has_said = False
    while True:
        try:
            notice = watcher.next_notice(_LOOK_S)
        except TimeoutError:
            pass
        else:
            if notice is None:
                break
            _print(notice, form)
        _warn_of_failures(watcher, warned)
        found = watcher.status()
        if found.seen_at is None and found.problem and not has_said:
            has_said = True
            again = "retrying" if known else f"retrying for {_CONNECT_S:.0f} s"
            note(f"{address} does not answer: {found.problem}; {again}")
        if found.seen_at is None and not known and patience.is_over:
            raise UnusableError(
                f"cannot watch {address}: {found.problem or 'no answer'}\n"
                "Check the address, and that the scheduler is running."
            )
    _warn_of_failures(watcher, warned)
    found = watcher.status()
    if found.state != "ended":
        raise UnusableError(f"the watcher ended before the cluster did: {found.problem}")
    click.echo("The cluster was closed.", err=True)


def _print(notice: WatchedCase, form: str) -> None:
    if form == "json":
        from workerdiag.watch.sinks.webhook import notice_json

        click.echo(json.dumps(notice_json(notice)))
        return
    for line in notice_lines(notice):
        click.echo(line, color=True)


def _warn_of_failures(watcher: Watcher, warned: set[tuple[str, str]]) -> None:
    found = watcher.status()
    failures = [(each.doing, f"could not {each.doing}: {each.problem}") for each in found.notes]
    of_sinks = ((each.name, each.problem.removeprefix(f"{each.name}: ")) for each in found.sinks if each.problem)
    failures += [(name, f"{name}: {problem}") for name, problem in of_sinks]
    for failure in failures:
        if failure not in warned:
            warned.add(failure)
            warn(failure[1])


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM closes the watcher in order, as service managers expect."""

    def stop(_number: int, _frame: object) -> None:
        raise SystemExit(EXIT_OK)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


for each in (status, resend):
    watch.add_command(each)
