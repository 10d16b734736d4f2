"""What a person sees in the terminal."""

from __future__ import annotations

import re
import unicodedata

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from support.findings import HOSTILE, dead, explained, hostile, nanny_kill, no_death, unknown
from workerdiag.model.diagnosis import (
    Advice,
    Blame,
    Clue,
    Decision,
    Findings,
    NextStep,
    RetryPolicy,
    TaskFailure,
)
from workerdiag.model.evidence import Gap
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import CodeLine, HeldObject, MemoryCensus, ProcessHistory, Timeline
from workerdiag.rendering.html import render_html
from workerdiag.rendering.markdown import render_markdown
from workerdiag.rendering.outline import outline
from workerdiag.rendering.text import render_note, render_text
from workerdiag.rendering.wording import (
    event_text,
    format_percent,
    held_lines,
    identity_text,
    printable,
    printable_object,
    shorten_bytes,
)

#: Lines that may be longer than the terminal: one word with a slash in it, or something to type.
UNBROKEN = re.compile(r"^[ |.\d-]*\S*[/\\]\S*$|^ {8,}\S")


def columns(line):
    """How much room a line takes in a terminal."""
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in line)


def test_three_lines_are_enough_for_someone_in_a_hurry():
    """What killed it, how sure that is, what to do: one line each, before anything else."""
    assert render_text(explained()).splitlines()[:4] == [
        "Cause     The nanny killed the worker: above its memory limit",
        "How sure  97%, very likely",
        "Do now    Give each worker more memory: at least 5 GiB.",
        "",
    ]


def test_how_sure_and_of_what_are_two_things():
    """Of a signal whose sender nobody knows, only that it came is certain, and the report says which is which."""
    text = render_text(explained(blame=Blame(verdict="unknown")))
    assert text.splitlines()[1] == "How sure  97%, very likely; who caused it is unknown"


def test_a_worker_that_lives_is_not_said_to_have_ended():
    """Where nobody died the task is to blame for something else than an end."""
    assert "ended the worker" in render_text(explained())
    assert "ended the worker" not in render_text(explained(deaths=()))


def test_each_outcome_reads_differently():
    """An answer, "nothing died" and "cannot tell" cannot be mistaken for one another."""
    assert [render_text(each()).split()[0] for each in (explained, no_death, unknown)] == [
        "Cause",
        "No",
        "Unknown",
    ]
    assert "How sure  Not sure" in render_text(unknown())
    assert "The workers need no action" in render_text(no_death()).splitlines()[2]


def test_no_death_with_gaps_says_how_far_it_looked():
    """Not looking is not seeing nothing."""
    text = render_text(no_death(gaps=explained().gaps))
    assert "1 place could not be read" in text.splitlines()[1]
    assert "Could not look at\n  - kernel log: forbidden" in text


def test_a_cause_that_is_not_shown_gets_no_advice():
    """Where the evidence does not tell, the report shows where to look and not what to change."""
    text = render_text(unknown())
    assert "What to do" not in text
    assert "Candidates\n  - 21%  The nanny killed the worker" in text
    assert "Where to look next" in text


def test_unknown_without_any_candidate_still_says_what_to_do():
    """With nothing at all to go by, the third line says what to bring."""
    text = render_text(unknown(causes=(), next_steps=(), gaps=()))
    assert text.splitlines()[2] == "How sure  Not sure."
    assert "the logs of the worker" in text.splitlines()[3]


def test_a_deliberate_stop_asks_for_nothing():
    """Where nobody has to change anything, the third line says so."""
    findings = explained()
    stopped = evolve(findings, causes=(nanny_kill(mitigations=()),), blame=evolve(findings.blame, verdict="nobody"))
    assert render_text(stopped).splitlines()[2] == "Do now    The workers need no action."


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        (RetryPolicy(action="retry", reason="why"), "For programs: Retry it as it is"),
        (RetryPolicy(action="retry-elsewhere", reason="why"), "For programs: Retry it elsewhere"),
        (RetryPolicy(action="do-not-retry", reason="why"), "For programs: Do not retry it as it is"),
        (RetryPolicy(reason="who knows"), "For programs: Ask a person before retrying it (who knows)"),
        (
            RetryPolicy(action="retry-with-memory", reason="why", memory_bytes=2**32),
            "For programs: Retry it on workers with more memory: at least 4 GiB each",
        ),
        (
            RetryPolicy(action="retry-with-memory", reason="why", memory_bytes=2**32, max_tries=1),
            "For programs: Retry it on workers with more memory, once: at least 4 GiB each",
        ),
    ],
)
def test_what_a_program_may_do_is_one_line(policy, line):
    """The person who reads the report sees what a program would have done."""
    assert line in " ".join(render_text(explained(decision=Decision(policy=policy))).split())


def test_every_part_of_the_findings_shows():
    """Evidence with its place, evidence against, deaths, blame, numbers, next steps, gaps, releases."""
    text = " ".join(render_text(explained()).split())
    for part in (
        "worker.log:120, 2026-11-21 10:02:03, decisive sign, seen 3 times",
        "| Worker tcp://10.0.0.4:34937 (pid=129) exceeded 95% memory budget.",
        "event worker-restart-memory, strong sign | worker tcp://10.0.0.4:34937, pid 129, process memory 3.82 GiB",
        "Evidence against - kern.log:7",
        "oom-counter (cgroup was not looked at)",
        "dask worker --memory-limit 5GiB",
        "2% The kernel killed the worker",
        "tcp://10.0.0.4:34937 (pid 129), 2026-11-21 10:02:03: killed by signal 9 (SIGKILL)",
        "Dask blames the task load-1, correctly: its function was running when workers died.",
        "Memory at death: 3.82 GiB of 4 GiB allowed (95%)",
        "Memory a worker needs: more than 3.93 GiB",
        "dmesg -T | grep -i 'killed process'",
        "kernel log: forbidden: /dev/kmsg",
        "https://distributed.dask.org/en/stable/worker-memory.html",
        "workerdiag 0.1.0, knowledge 2026.11.0, nanny.memory-terminate revision 4,",
        "fingerprint 3f2a9c01",
    ):
        assert part in text


def test_many_deaths_alike_are_one_line():
    """A hundred workers killed the same way take one line, and the odd one has its own."""
    many = [
        dead(identity=Identity(worker=f"tcp://10.0.0.{n}:40000", pid=n), when=dead().when + n) for n in range(100)
    ]
    odd = dead(signal=None, status=3, cause="exit.other", probability=0.4, reason="x" * 100)
    text = render_text(explained(deaths=(*many, odd)))
    assert "Deaths (101)" in text
    assert "100 workers, 2026-11-21 10:02:03 to 10:03:42: killed by signal 9 (SIGKILL)" in text
    assert "exited with status 3" in text
    assert "exit.other, 40%" in text


def test_the_first_screen_says_how_many_deaths_it_leaves_out():
    """A count above the list that is larger than the list would leave a reader searching."""
    deaths = tuple(dead(status=status, signal=None) for status in (3, 4, 5))
    text = render_text(explained(deaths=deaths), full=False)
    listed = text.partition("Deaths (3)")[2].partition("\n\n")[0]
    assert listed.count("exited with status") + int(listed.partition("\n  and ")[2].split()[0]) == 3


@pytest.mark.parametrize("render", [render_text, render_html, render_markdown])
def test_the_strongest_evidence_comes_first(render):
    """A reader who stops after the first sign has seen the best one."""
    clues = tuple(
        Clue(sign=grade, text=f"line {grade}", where="worker.log:1", grade=grade)
        for grade in ("hint", "decisive", "weak")
    )
    text = render(explained(causes=(nanny_kill(evidence=clues),)))
    assert text.index("line decisive") < text.index("line weak") < text.index("line hint")


def test_deaths_are_bounded_and_say_how_many_are_left_out():
    """Thirty different deaths show as ten, and twenty more."""
    text = render_text(explained(deaths=tuple(dead(signal=None, status=n) for n in range(1, 31))))
    assert "exited with status 10" in " ".join(text.split())
    assert "exited with status 11" not in " ".join(text.split())
    assert "and 20 more" in text


def test_long_lists_are_bounded():
    """Forty clues and gaps do not scroll the answer away."""
    clues = tuple(Clue(sign="s", text=f"line {n}", where=f"a.log:{n}", grade="weak") for n in range(40))
    gaps = tuple(Gap(source=f"host-{n}", reason="timed-out") for n in range(40))
    text = render_text(explained(causes=(nanny_kill(evidence=clues),), gaps=gaps))
    assert "and 32 more" in text
    assert "and 30 more" in text


def test_a_traceback_shows_its_beginning_and_its_end():
    """The last line of a traceback says what it was, so it is never the one left out."""
    frames = "\n".join(f'  File "a.py", line {n}, in f' for n in range(50))
    trace = f"Failed to deserialize\nTraceback (most recent call last):\n{frames}\nModuleNotFoundError: No module named 'x'"
    clue = Clue(sign="s", text=trace, where="a.log:1", grade="decisive")
    text = render_text(explained(causes=(nanny_kill(evidence=(clue,)),)))
    assert "| Failed to deserialize" in text
    assert "more lines ..." in text
    assert "| ModuleNotFoundError: No module named 'x'" in text


def test_a_gap_that_is_also_a_next_step_is_said_once():
    """What closes a gap stands with the gap."""
    gap = Gap(source="log x", reason="unreachable", detail="there is no such file", remedy="check the path")
    step = NextStep(inspect="log x: there is no such file", command="check the path")
    assert render_text(explained(gaps=(gap,), next_steps=(step,))).count("there is no such file") == 1


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("build", [explained, no_death, unknown, hostile])
def test_no_line_is_wider_than_the_terminal(build, width):
    """Only an address, a path or something to type may be, as breaking it would spoil it."""
    for line in render_text(build(), width=width).splitlines():
        assert columns(line) <= width or UNBROKEN.match(line), line


def test_a_path_is_never_broken_and_a_flood_of_letters_is():
    """A long path can be copied; ten thousand letters without a blank cannot push the terminal wide."""
    path = "/very/long/" + "folder/" * 15 + "worker.log"
    clues = (Clue(sign="s", text=f"in {path} x" + "y" * 10_000, where=f"{path}:3", grade="weak"),)
    text = render_text(explained(causes=(nanny_kill(evidence=clues),)))
    assert f"{path}:3" in text
    assert max(map(len, text.splitlines())) < 200


def test_wide_characters_count_as_two_columns():
    """A task named in Chinese does not push lines over the edge of the terminal."""
    text = render_text(explained(summary="任务" * 60))
    assert max(columns(line) for line in text.splitlines()) <= 80
    assert "任务" * 30 in text.replace("\n", "")


def test_hostile_text_cannot_speak_to_the_terminal():
    """No control character, no escape sequence, no reordering, nothing invisible, nothing unprintable."""
    text = render_text(hostile())
    assert {unicodedata.category(char) for char in text.replace("\n", "")} <= {
        "Ll", "Lu", "Nd", "Pc", "Pd", "Pe", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zs",
    }  # fmt: skip
    assert "red gnirts zero" in text  # the words themselves are still there
    assert "title" not in text  # the title of a window is none of the text
    text.encode()


@pytest.mark.parametrize(("build", "tint"), [(hostile, 31), (no_death, 32), (unknown, 33)])
def test_colour_is_ours_alone_and_adds_nothing_else(build, tint):
    """Bold labels and the colour of the answer are the only sequences, and without them the text is the same."""
    colored = render_text(build(), color=True)
    assert set(re.findall(r"\x1b[^m]*m", colored)) == {"\x1b[1m", "\x1b[0m", f"\x1b[{tint}m"}
    assert re.sub(r"\x1b\[\d+m", "", colored) == render_text(build())


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("build", [explained, no_death, unknown])
def test_the_first_screen_is_one_screen(build, width):
    """A small terminal shows the answer, its evidence and how to see the rest, without scrolling."""
    text = render_text(build(), width=width, full=False)
    assert text.count("\n") < 24
    assert text.splitlines()[:2] == render_text(build(), width=width).splitlines()[:2]


def test_the_first_screen_says_what_it_leaves_out_and_how_to_get_it():
    """Nobody has to guess that there is more."""
    text = " ".join(render_text(explained(), full=False).split())
    assert "Full report (2 suggestions, 2 signs, 1 death, 1 gap): print(diagnosis.to_text(full=True))" in text


def test_what_a_task_raised_stands_with_its_line_of_code():
    """Where a task failed and nobody died, the user's own line is the answer."""
    failure = TaskFailure(
        type="KeyError",
        message="'rain'",
        raised_at="total (work.py:3)",
        source=(">    3  found += day['rain']",),
    )
    text = render_text(no_death(failure=failure))
    assert "Where     total (work.py:3)\nDo now    Fix total (work.py:3)." in text
    assert "  - KeyError: 'rain'\n    | >    3  found += day['rain']" in text
    assert "The task's error" not in render_text(explained(failure=failure))


def test_no_command_for_another_place_stands_below_a_line_to_mend():
    """Where nobody knows whether a worker died, the places to look at come after the line that raised."""
    failure = TaskFailure(type="KeyError", message="'rain'", raised_at="total (work.py:3)")
    step = NextStep(inspect="the kernel log", command="dmesg -T")
    text = render_text(unknown(failure=failure, deaths=(), next_steps=(step,)), full=False)
    assert "Do now    Fix total (work.py:3).\n\n" in text
    assert "1. The kernel log" in text


def test_where_it_crashed_is_said_of_the_cause_at_hand_only():
    """An earlier crash of another cause does not lend its place to this one."""
    earlier = dead(cause="signal.segfault", crashed_in=("string_at (ctypes/__init__.py:519)",))
    assert "\nWhere   " not in render_text(explained(deaths=(earlier, dead())))


def test_the_line_that_was_running_at_a_memory_kill_is_named():
    """Text and note name the line of the user's code, and how many others there are."""
    here = CodeLine(file="/home/me/my_code.py", line=31, function="join_all", task="join-1")
    other = evolve(here, line=40)
    findings = explained(deaths=(dead(lines=(here, other)), dead(lines=(evolve(here, task="join-2"),))))
    assert "\nAt line   /home/me/my_code.py:31, in join_all; and 1 other place\n" in render_text(findings)
    assert ", at line /home/me/my_code.py:31, in join_all; " in render_note(findings)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "Held by `cols`: list of 20, 366 MiB of 622 MiB in use (seen at 93% of the limit)"),
        (
            {"module": "my_code", "name": "CACHE", "line": None, "type": "dict"},
            "Held by `my_code.CACHE`: dict of 20, 366 MiB of 622 MiB in use (seen at 93% of the limit)",
        ),
        (
            {
                "name": "a",
                "type": "np.ndarray",
                "count": None,
                "size_bytes": 1600 * 10**6,
                "line": CodeLine(file="/x/site-packages/np/numeric.py", line=233, function="ones"),
            },
            "Held by `a` in ones of np/numeric.py: np.ndarray, 1.49 GiB asked for, 622 MiB in use (seen at 93% of the limit)",
        ),
        ({"size_bytes": 10**6}, "No variable held much of the 622 MiB in use (seen at 93% of the limit)"),
    ],
)
def test_what_held_the_memory_is_named_with_its_size(changes, line):
    """Variable, type and size, of what was in use then; a variable of a library with its function."""
    here = CodeLine(file="/home/me/my_code.py", line=31, function="join_all", task="join-1")
    cols = HeldObject(name="cols", type="list", size_bytes=384 * 10**6, count=20, line=here)
    census = MemoryCensus(
        at=99.0, rss_bytes=652 * 10**6, limit_bytes=700 * 10**6, objects=(evolve(cols, **changes),)
    )
    history = ProcessHistory(identity=Identity(pid=1), censuses=(census,), recorded=True, when=100.0)
    assert held_lines([ProcessHistory(identity=Identity(pid=2)), history]) == [line]
    text = render_text(explained(timeline=Timeline(histories=(history,))), width=300)
    assert f"\n  - {line}\n" in text
    earlier = evolve(history, when=220.0)
    assert held_lines([earlier])[0].endswith("of the limit, 2 minutes before the end)")


def test_a_short_report_is_shown_whole():
    """Where everything fits on one screen nothing is left out."""
    assert render_text(no_death(), full=False) == render_text(no_death())


def test_the_first_screen_quotes_the_line_that_says_what_it_was():
    """Of a traceback that is its last line, not a frame in the middle."""
    quoted = "Failed to deserialize … File \"serialize.py\", line 3 … ModuleNotFoundError: No module named 'acme'"
    clue = Clue(sign="s", text=quoted, where="a.log:1", grade="decisive")
    text = render_text(explained(causes=(nanny_kill(evidence=(clue,)),)), full=False)
    assert "| ModuleNotFoundError: No module named 'acme'" in text
    assert "serialize.py" not in text


def test_the_same_message_at_two_places_is_quoted_once():
    """What the scheduler says and what the exception repeats is one piece of evidence."""
    said = "KilledWorker: Attempted to run task 'x' on 4 different workers"
    clues = (
        Clue(sign="a", text=f"distributed.scheduler.{said}", where="exception:8", grade="hint"),
        Clue(sign="b", text=said, where="exception", grade="weak"),
    )
    assert render_text(explained(causes=(nanny_kill(evidence=clues),))).count("Attempted") == 1


def test_advice_ends_with_a_whole_sentence():
    """The first lines never stop in the middle of what to do."""
    advice = Advice(do="Switch on faulthandler everywhere, so that the next crash names its line. " + "x" * 300)
    lines = render_text(explained(causes=(nanny_kill(mitigations=(advice,)),))).splitlines()
    assert lines[2:5] == [
        "Do now    Switch on faulthandler everywhere, so that the next crash names its",
        "          line.",
        "",
    ]


@pytest.mark.parametrize("quoted", ["It waits. " + "Then it goes on. " * 20, "word " * 60])
def test_a_quotation_that_is_cut_ends_in_its_mark(quoted):
    """At the end of a sentence, and in the middle of one."""
    lead = render_text(unknown(summary=f'Something went wrong: "{quoted.strip()}"')).partition("How sure")[0]
    assert lead.rstrip().endswith('..."')


def test_the_footer_keeps_each_number_with_its_name():
    """No line ends in "revision" or "knowledge"."""
    for width in range(60, 100):
        lines = render_text(explained(), full=True, width=width).splitlines()
        assert not [line for line in lines if line.endswith((" revision", " knowledge", " fingerprint"))]


def test_the_status_that_stands_for_any_end_says_so():
    """A nanny reports 255 where it could not learn how the worker ended."""
    assert "exited with status 255, or an unknown one" in " ".join(
        render_text(explained(deaths=(dead(signal=None, status=255),))).split()
    )


@given(st.text())
def test_cleaning_leaves_only_what_shows(text):
    """Whatever the text, cleaning takes out all that a terminal acts upon, and doing it twice changes nothing."""
    cleaned = printable(text)
    assert not {"Cc", "Cf", "Co", "Cs"} & {unicodedata.category(char) for char in cleaned.replace("\n", "")}
    assert printable(cleaned) == cleaned


def test_what_is_clean_stays_the_same_object():
    """Most text is harmless, and findings without any other are not made anew for each rendering."""
    findings = Findings(outcome="unknown", summary="as it is", gaps=(Gap(source="a", reason="expired"),))
    assert printable_object(findings) is findings
    odd = evolve(findings, gaps=(Gap(source="a\x07", reason="expired"),))
    assert printable_object(odd).gaps[0].source == "a"


def test_text_of_a_class_of_its_own_becomes_plain():
    """A subclass may render as anything, as one that marks itself as harmless HTML does."""

    class Marked(str):
        """As `markupsafe.Markup`."""

        __slots__ = ()

    assert type(printable(Marked("<b>"))) is str


def test_cleaning_is_linear():
    """A megabyte of unfinished escape sequences takes no longer than a megabyte of anything."""
    for piece in ("\x1b]", "\x9d", "\x1b[", "\x1b[0;", "\x1bP"):
        assert printable(piece * 200_000).count("\x1b") == 0


@given(st.floats(0, 1))
def test_no_percentage_claims_certainty(chance):
    """A report never says 100%, and says 0% only of what is impossible."""
    assert format_percent(chance) != "100%"
    assert (format_percent(chance) == "0%") == (chance == 0)


@settings(max_examples=50)
@given(st.text(max_size=300), st.integers(1, 120))
def test_any_text_at_any_width_renders(text, width):
    """Nothing that can stand in findings makes the report fail."""
    cause = nanny_kill(title=text, mitigations=(Advice(do=text, example=text),))
    rendered = render_text(explained(summary=text, causes=(cause,), deaths=(dead(reason=text),)), width=width)
    assert len(rendered.splitlines()) > 3


def test_moments_that_no_calendar_has_are_left_out():
    """A timestamp of a broken clock is no reason to fail."""
    text = render_text(explained(deaths=(dead(when=1e300),)))
    assert "(pid 129): killed" in text


def test_the_fields_of_an_event_are_in_words_with_units():
    """Sizes, times and shares have units, and what is true is yes; what says nothing is left out."""
    fields = (
        "rss_bytes=1014792192, managed_bytes=0, open_files_limit=20000, seconds_since_heartbeat=1.006",
        "paused=True, expected=False, terminate_fraction=0.95, memory=x, thread_count=5",
    )
    assert event_text(f"event recorder: {', '.join(fields)}") == (
        "process memory 968 MiB, limit of open files 20000, time since the last heartbeat 1 second, paused yes, "
        "terminate fraction 95%, memory x, threads 5"
    )


def test_hostile_text_is_really_hostile():
    """The text these tests throw at the renderings holds what they claim to disarm."""
    for part in ("\x1b[", "\x9b", "\u202e", "<script>", "](javascript:", "@octocat", "```", "\ud800"):
        assert part in HOSTILE


@pytest.mark.parametrize(
    ("container", "text"),
    [("4711", "job 4711"), ("4711[3].server", "job 4711[3].server"), ("worker-7d9f", "in worker-7d9f")],
)
def test_the_number_of_a_batch_job_is_said_to_be_one(container, text):
    """A bare number says nothing; a pod's or a container's name does."""
    assert identity_text(Identity(worker="tcp://10.0.0.4:1", container=container)).endswith(f"({text})")


@pytest.mark.parametrize(
    ("beyond", "expected"),
    [("", ""), (" (at least 4 worker processes)", "At least 4 worker processes died of it.")],
)
def test_the_summary_does_not_say_the_cause_again(beyond, expected):
    """It stands in the line above."""
    findings = explained()
    assert findings.top is not None
    assert outline(evolve(findings, summary=f"{findings.top.title}{beyond}.")).summary == expected


def test_where_no_one_needs_to_act_nothing_is_to_be_done_now():
    """A worker that was retired in order is no reason to change a setting; what could be changed comes later."""
    text = render_text(explained(blame=Blame(verdict="nobody")), full=False)
    assert "Do now    The workers need no action.\n\n" in text
    assert "What to do\n  1. Give each worker more memory" in render_text(explained(blame=Blame(verdict="nobody")))


def test_a_reason_is_a_sentence_of_its_own():
    """Whoever found it, each reason begins with a capital letter and ends with one full stop."""
    text = render_text(explained(blame=Blame(verdict="task", reasons=("task a was running", "It ran alone."))))
    assert "  - Task a was running.\n  - It ran alone.\n" in text


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("client-restart-1795282193.02", "a client restarted it"),
        (
            "failure-to-start-<class 'distributed.core.CommClosedError'>",
            "it could not start: CommClosedError",
        ),
    ],
)
def test_what_dask_gives_as_the_reason_is_put_into_words(reason, words):
    """Nobody has to read distributed's source for what its reasons mean."""
    (death,) = explained().deaths
    assert f"Dask: {words}" in " ".join(render_text(explained(deaths=(evolve(death, reason=reason),))).split())


def test_a_quotation_has_no_pickle_in_it_and_is_not_quoted_twice():
    """The bytes of a message that could not be read say nothing to anybody, and a part of a quotation nothing new."""
    said = r"Failed to deserialize b'\x80\x05\x95X\x00\x00\x00\x00\x00\x00\x8c\x0fdask._task_spec'"
    whole = Clue(sign="missing", grade="decisive", text=f"{said}\nModuleNotFoundError: acme", where="a.log:3")
    part = Clue(sign="undecoded", grade="hint", text=said, where="a.log:3")
    top = evolve(explained().causes[0], evidence=(whole, part))
    text = render_text(explained(causes=(top,)))
    assert text.count(r"    | Failed to deserialize b'\x80\x05...'") == 1


def test_the_bytes_of_a_pickle_are_cut_also_where_they_hold_a_quote():
    """``repr`` puts bytes between the quotes that they do not hold."""
    said = r"""Failed to deserialize b'\x80\x05\x95X\x00\x00\x8c"\x8c\x18somewhere_else\x94\x8c\x04work"""
    assert shorten_bytes(said) == r"Failed to deserialize b'\x80\x05..."


@pytest.mark.parametrize(("verdict", "waited"), [("other-task", True), ("configuration", False)])
def test_a_task_only_waited_where_that_is_why_it_is_innocent(verdict, waited):
    """A limit that ended the worker clears the task whether it ran or not."""
    text = render_text(explained(blame=Blame(verdict=verdict, task="load-7", fairly_blamed=False)), full=True)
    assert "Dask blames the task load-7, wrongly" in text
    assert ("only waiting" in " ".join(text.split())) is waited
