"""``workerdiag watch``: follow a cluster, and say why its workers die."""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click

from workerdiag.cli.commands import EXIT_OK, SafeGroup, UnusableError, command, format_option
from workerdiag.cli.terminal import is_colored, note, warn, wrapped
from workerdiag.cli.watch_options import make_state_folder, sink_options, state_option
from workerdiag.cli.watch_state import confirm, resend, silence, status, unsilence
from workerdiag.deadline import Deadline
from workerdiag.units import format_time

if TYPE_CHECKING:
    from workerdiag.model.vocabulary import NoticeReason
    from workerdiag.watch.deliveries import SinkStatus
    from workerdiag.watch.notice_policy import NoticePolicy
    from workerdiag.watch.watched_case import Notice
    from workerdiag.watch.watcher import Watcher

_INDENT = "  "
#: The command that ``workerdiag watch ADDRESS`` means.
_START = "start"
#: A word that may be a command, and is neither an address nor what a scheduler file is mostly called.
_MISTYPED = re.compile(r"\w+")
#: Seconds between two looks whether something failed.
_LOOK_S = 1.0
#: Seconds to wait for a scheduler that was never seen.
_CONNECT_S = 30.0
NoticeFormat = Literal["text", "json"]


def notice_lines(notice: Notice) -> Iterator[str]:
    """Time and reason of a notice, its title, the rest of it, and an empty line."""
    yield _styled(f"{format_time(notice.at)} UTC  {notice.reason}", dim=True)
    title, *others = notice.text.splitlines() or [notice.title]
    for line in wrapped(title):
        yield _styled(line, bold=True, fg=_color(notice.reason))
    for each in others:
        yield from wrapped(each, first=_INDENT, rest=_INDENT * 2)
    yield ""


def sink_problem(sink: SinkStatus) -> str:
    """What a sink's last failure was, with the sink's name once."""
    return sink.problem if sink.problem.startswith(sink.name) else f"{sink.name}: {sink.problem}"


def _color(reason: NoticeReason) -> str | None:
    if reason in ("new", "recurring", "escalating"):
        return "red"
    return {"resolved": "green", "blind": "yellow"}.get(reason)


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
            raise click.UsageError(
                f"{args[0]} is the address of a dashboard; give the scheduler's, such as tcp://10.0.0.1:8786",
                ctx,
            )
        if _MISTYPED.fullmatch(args[0]) and not os.path.lexists(args[0]):
            near = difflib.get_close_matches(args[0], self.commands)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(
                f"{args[0]!r} is no command, no address (tcp://10.0.0.1:8786) and no scheduler file.{hint}",
                ctx,
            )
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
    "workerdiag watch tcp://10.0.0.1:8786 --slack '#dask' --pagerduty env:PAGERDUTY_KEY",
    "workerdiag watch scheduler.json --name prod --state prod.db --format json",
    "workerdiag watch status",
    "workerdiag watch silence 3f9a1c2b4d5e --for 4h --reason 'the loader is being mended'",
    name=_START,
    group=watch,
    hidden=True,
)
@click.argument("address")
@sink_options
@state_option
@click.option("--bundles", metavar="FOLDER", help="Save the evidence of each case there, as a death bundle.")
@click.option("--name", metavar="NAME", help="What people call the cluster. By default its address.")
@click.option(
    "--known-issues", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file of known issues."
)
@click.option("--quiet-hours", metavar="HOURS", help="Hold notices back then: '22:00-07:00 Europe/Berlin'.")
@format_option("text", "json", text="How notices are printed: json is one object a line.")
def start(  # noqa: PLR0913, PLR0917  click gives one for each option
    address: str,
    state: str | None,
    bundles: str | None,
    name: str | None,
    known_issues: str | None,
    quiet_hours: str | None,
    form: NoticeFormat,
    **sinks: tuple[str, ...],
) -> int:
    """Follow a cluster, and say why its workers die: here, and wherever the options say.

    ADDRESS is that of the scheduler, or the path of a scheduler file, which is read again each time.
    Tokens and passwords come from the environment: SLACK_TOKEN, WORKERDIAG_WEBHOOK_SECRET,
    WORKERDIAG_MAIL_SERVER (smtp://USER:PASSWORD@HOST:587), WORKERDIAG_MAIL_SENDER. A value env:NAME is that
    of the variable NAME.

    Exit status: 0 the cluster was closed, or SIGTERM; 2 bad usage, a scheduler that was never seen, or a
    state file that cannot be used.
    """
    from workerdiag.cli.live import quiet_dask
    from workerdiag.watch.sinks.options import sinks_of
    from workerdiag.watch.watch_function import watch as start_watching

    given = sinks_of({kind: values for kind, values in sinks.items() if values})
    policy = _policy(known_issues, quiet_hours)
    path = make_state_folder(state)
    with (
        quiet_dask(),
        _ended_by_sigterm(),
        start_watching(address, *given, state=path, bundles=bundles, name=name, policy=policy) as watcher,
    ):
        click.echo(f"Watching {name or address}; the state is in {path}", err=True)
        _follow(watcher, address, form)
    return EXIT_OK


def _policy(known_issues: str | None, quiet_hours: str | None) -> NoticePolicy:
    from workerdiag.watch.notice_policy import NoticePolicy
    from workerdiag.watch.quiet_hours import QuietHours
    from workerdiag.watch.silences import read_known_issues

    given: dict[str, Any] = {}  # what is not given is as configured
    if known_issues:
        given["known_issues"] = read_known_issues(known_issues)
    if quiet_hours:
        given["quiet_hours"] = QuietHours.parse(quiet_hours)
    return NoticePolicy(**given)


def _follow(watcher: Watcher, address: str, form: NoticeFormat) -> None:
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
            again = "asking again" if known else f"asking again for {_CONNECT_S:.0f} s"
            note(f"{address} does not answer: {found.problem}; {again}")
        if found.seen_at is None and not known and patience.is_over:
            raise UnusableError(
                f"cannot watch {address}: {found.problem or 'no answer'}\n"
                "Check the address, and that the scheduler runs."
            )
    _warn_of_failures(watcher, warned)
    found = watcher.status()
    if found.state != "ended":
        raise UnusableError(f"the watcher ended before the cluster did: {found.problem}")
    click.echo("The cluster was closed.", err=True)


def _print(notice: Notice, form: NoticeFormat) -> None:
    if form == "json":
        from workerdiag.watch.sinks.webhook import notice_json

        click.echo(json.dumps(notice_json(notice)))
        return
    for line in notice_lines(notice):
        click.echo(line, color=True)


def _warn_of_failures(watcher: Watcher, warned: set[tuple[str, str]]) -> None:
    found = watcher.status()
    failures = [(each.doing, f"could not {each.doing}: {each.problem}") for each in found.notes]
    failures += [(each.name, sink_problem(each)) for each in found.sinks if each.problem]
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


watch.add_command(status)
watch.add_command(confirm)
watch.add_command(silence)
watch.add_command(unsilence)
watch.add_command(resend)
