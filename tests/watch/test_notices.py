"""What notices say."""

from __future__ import annotations

import shlex

import click
import pytest
from attrs import evolve

from support.alerts import (
    CLUSTER,
    REASONS_OF_A_CASE,
    SETTINGS,
    START,
    diagnosis_of,
    incident,
    opened,
    sure_of,
    unsure,
    watched,
)
from support.findings import HOSTILE, hostile
from support.sample_secrets import WORD
from workerdiag.cli import main
from workerdiag.model.evidence import Event
from workerdiag.model.identity import Identity
from workerdiag.watch.case import blind_case, ended, with_incident, with_time
from workerdiag.watch.notices import TITLE_CHARS, is_web_address, notice_of


def test_a_notice_says_what_died_why_how_sure_and_what_to_do():
    """The text stands alone: what, when, where, how sure, who acts, what to do, where to read on."""
    case = evolve(opened(watched(1), watched(2, when=START + 61, host="10.0.0.5")), bundle="/b/death.zip")
    notice = notice_of(case, "new", START + 70)
    assert notice.title == (
        "2 workers of prod died on 2 hosts: The nanny killed the worker: above its memory limit (97%)"
    )
    assert notice.text.split("\n") == [
        notice.title,
        "When: 2026-11-21 10:02:03 to 2026-11-21 10:03:04 UTC",
        "Where: 10.0.0.4, 10.0.0.5",
        "First victim: tcp://10.0.0.4:10001",
        "Task: load-1",
        "How sure: 97%, very likely",
        "Who needs to act: The task: its code or its data ended the worker.",
        "Do now: Give each worker more memory: at least 5 GiB.",
        "Or: Make the chunks smaller.",
        "More: workerdiag knowledge show nanny.memory-terminate",
        "Evidence: /b/death.zip",
        f"Case: {case.id}, notice 1",
    ]
    assert (notice.notice_id, notice.links["bundle"]) == (f"{case.id}-{START:.0f}-1", "/b/death.zip")


def test_the_command_line_understands_the_command():
    """What a notice says to type has arguments that the command line knows."""
    (more,) = [each for each in notice_of(opened(), "new", START).text.split("\n") if each.startswith("More: ")]
    program, *words = shlex.split(more.removeprefix("More: "))
    assert program == "workerdiag"
    found, context = main, None
    while isinstance(found, click.Group):
        context = click.Context(found, parent=context)
        found = found.get_command(context, words.pop(0))
    found.make_context(found.name, words, parent=context)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("https://docs.example.org/causes/a?b=c#d", True),
        ("http://[::1]:8000/", True),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("https://good.example@evil.example/", False),
        ("https://a.example/<script>", False),
        ("https://a.example/\u202e", False),
        ("https://", False),
        ("https://[", False),
        ("https://a.example/" + "x" * 3000, False),
        (HOSTILE, False),
    ],
)
def test_only_web_addresses_become_links(target, expected):
    """Whatever a browser would act upon otherwise is shown as text."""
    assert is_web_address(target) is expected


def test_what_was_done_about_it_is_said_before_what_to_do():
    """By `workerdiag.rescue`."""
    case = evolve(opened(watched(1)), acts=("Every worker runs at most 1 of 2 tasks at once from now on",))
    lines = notice_of(case, "new", START + 70).text.split("\n")
    done = lines.index("Done about it: Every worker runs at most 1 of 2 tasks at once from now on")
    assert lines[done + 1].startswith("Do now: ")


def test_doubt_is_said():
    """Without a sure cause the title says so, and the text where to look next."""
    case, _ = with_incident(None, incident(watched(), diagnosis=unsure()), CLUSTER, START, SETTINGS)
    notice = notice_of(case, "new", START)
    assert notice.title.startswith("1 worker of prod died: cause unknown, best guess: The nanny")
    assert notice.title.endswith("(21%)")
    assert "\nDo now: Look at the kernel log" in notice.text


def test_a_cause_below_even_odds_is_a_guess():
    """What is only the likeliest of several causes is not claimed."""
    likeliest = incident(watched(), diagnosis=sure_of(probability=0.42))
    case, _ = with_incident(None, likeliest, CLUSTER, START, SETTINGS)
    title = notice_of(case, "new", START).title
    assert title.startswith("1 worker of prod died: cause unknown, best guess: The nanny killed")
    assert title.endswith("(42%)")


def test_a_standstill_is_no_death():
    """Where nothing died, no death is told."""
    stands, _ = with_incident(
        None,
        incident(diagnosis=sure_of("standstill.no-workers", title="No worker")),
        CLUSTER,
        START,
        SETTINGS,
    )
    assert notice_of(stands, "new", START).title == "prod stands still: No worker (97%)"
    assert notice_of(stands, "resolved", START).title == "Resolved: prod is working again: No worker (97%)"


def test_blindness_is_told_as_what_it_is():
    """While the watcher cannot see, silence is no health; then it sees again."""
    case = blind_case("prod", START, "the scheduler has not answered for 2 minutes")
    told = notice_of(case, "blind", START)
    assert told.title == "The watcher cannot see prod: the scheduler has not answered for 2 minutes"
    assert "silence does not mean health" in told.text
    case, _ = with_time(case, START + 3600, seen_at=START + 3600, settings=SETTINGS)
    again = notice_of(case, "resolved", START + 3600)
    assert again.title == "The watcher sees prod again"
    assert "for 1 hour" in again.text


def test_an_ended_cluster_is_not_called_resolved():
    """The end of the cluster is told as such."""
    case, _ = ended(opened(), START + 60)
    notice = notice_of(case, "ended", START + 60)
    assert notice.title.startswith("Cluster ended: 1 worker of prod died")
    assert "shut down before this was resolved" in notice.text


@pytest.mark.parametrize("reason", REASONS_OF_A_CASE)
def test_a_hostile_worker_cannot_forge_or_flood_a_notice(reason):
    """Names and titles from outside stay text: one line, no escapes, of bounded length."""
    identity = Identity(worker=HOSTILE, name=HOSTILE, host=HOSTILE)
    bad = incident(watched(identity=identity), watched(2), diagnosis=diagnosis_of(hostile()))
    case, _ = with_incident(None, bad, HOSTILE * 9, START, SETTINGS)
    notice = notice_of(case, reason, START)
    assert len(notice.title) <= TITLE_CHARS
    assert "\n" not in notice.title
    for text in (
        notice.title,
        notice.text,
        notice.cluster,
        notice.first_victim,
        *notice.hosts,
        *notice.advice,
    ):
        assert not {"\x1b", "\x9b", "\u202e", "\u2066", "\u200b", "\ud800", "\x00"} & set(text)
    assert all(len(line) <= 500 for line in notice.text.split("\n"))


def test_names_bring_no_secret_out():
    """A password in the name of a cluster, a worker or a bundle is hidden."""
    identity = Identity(worker=f"tls://ann:{WORD}@10.0.0.4:8786", host="10.0.0.4")
    case, _ = with_incident(
        None,
        incident(watched(identity=identity), watched(2)),
        f"https://ann:{WORD}@gateway.example/clusters/prod",
        START,
        SETTINGS,
    )
    case = evolve(case, bundle=f"s3://deaths/1.zip?token={WORD}{WORD}")
    notice = notice_of(case, "new", START)
    said = (notice.title, notice.text, notice.cluster, notice.first_victim, *notice.links.values())
    assert WORD not in " ".join(said)


def test_workers_that_die_again_and_again_are_told_with_the_work_that_is_done_twice():
    """A case whose deaths take finished results with them gets worse once, and its notices say how much."""
    case, said = opened(watched(1)), []
    for number in range(2, 6):
        at = START + 400 * number
        lost = {"action": "remove-worker", "lost-computed-tasks_count": 12}
        death = evolve(watched(number, when=at), evidence=(Event(topic="all", fields=lost),))
        case, reason = with_incident(case, incident(death), CLUSTER, at, SETTINGS)
        said.append(reason)
    assert said == [None, None, "escalating", None]
    assert (
        "\nAgain and again: 5 deaths in 33 minutes; 48 finished results lost with them, to be computed again\n"
        in notice_of(case, "escalating", START).text
    )


def test_workers_that_die_without_results_do_no_work_twice():
    """As machines that are taken back one after the other."""
    case = opened(watched(1))
    for number in range(2, 8):
        case, _ = with_incident(case, incident(watched(number)), CLUSTER, START + 400 * number, SETTINGS)
    assert "Again and again" not in notice_of(case, "escalating", START).text
