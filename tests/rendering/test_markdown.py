"""What is pasted into issues and chats: the report, and nothing that a log smuggles in."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from support.findings import HOSTILE, explained, hostile, nanny_kill, no_death, unknown
from workerdiag.model.diagnosis import Clue
from workerdiag.rendering.markdown import code_block, escape, link, render_markdown

#: The strictest reader: HTML and bare addresses are allowed to mean something.
READER = MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["linkify", "table", "strikethrough"])


class Seen(HTMLParser):
    """Tags, link targets and text of rendered Markdown."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.targets, self.words = set(), [], []
        self._in_code = 0
        self.prose = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        """Note the tag and what it points to."""
        self.tags.add(tag)
        self.targets += [value for name, value in attrs if name in ("href", "src")]
        self._in_code += tag == "code"

    def handle_endtag(self, tag):
        """Note that the tag is over."""
        self._in_code -= tag == "code"

    def handle_data(self, data):
        """Note the text."""
        self.words += data.split()
        if not self._in_code:
            self.prose += data


def rendered(findings):
    """What a reader of Markdown makes of the report."""
    return Seen(READER.render(render_markdown(findings)))


def test_the_report_is_all_there():
    """Lead, advice with its command, evidence, numbers, gaps and a working link."""
    seen = rendered(explained())
    text = " ".join(seen.words)
    assert text.startswith(
        "Cause: The nanny killed the worker: above its memory limit How sure: 97%, very likely Do"
    )
    for part in (
        "dask worker --memory-limit 5GiB",
        "Worker tcp://10.0.0.4:34937 (pid=129) exceeded 95% memory budget. Restarting...",
        "worker.log:120, 2026-11-21 10:02:03, decisive sign, seen 3 times",
        "Memory at death: 3.82 GiB of 4 GiB allowed (95%)",
        "kernel log: forbidden: /dev/kmsg: Operation not permitted",
        "workerdiag 0.1.0, knowledge 2026.11.0",
    ):
        assert part in text
    assert seen.targets == ["https://distributed.dask.org/en/stable/worker-memory.html"]
    assert {"h3", "ol", "ul", "pre", "code", "strong", "em"} <= seen.tags


@pytest.mark.parametrize("build", [explained, no_death, unknown, hostile])
def test_only_our_own_marks_mean_anything(build):
    """Headings, lists and code are ours; there is no image, no table, no raw HTML, whatever a log says."""
    ours = {"p", "strong", "em", "h3", "ul", "ol", "li", "pre", "code", "hr", "br", "a"}
    assert rendered(build()).tags <= ours


def test_hostile_text_makes_no_link_and_no_mention():
    """An address, a name behind @ or a number behind # stay words."""
    seen = rendered(hostile())
    assert seen.targets == []
    assert "evil.example" in seen.prose
    assert not re.search(r"@\w|#\d|GH-\d", seen.prose)
    assert "\\" not in seen.prose.replace(r"\ud800", "")  # half a character is shown so; no escape went wrong


def test_a_log_cannot_end_its_own_fence():
    """Backticks in a log line make the fence longer, never shorter."""
    clue = Clue(sign="s", text="```\n# heading\n~~~~\n`````\n<b>", where="a.log:1", grade="weak")
    seen = rendered(explained(causes=(nanny_kill(evidence=(clue,)),)))
    assert "b" not in seen.tags
    assert "h1" not in seen.tags
    assert code_block(["`````"], 0).startswith("``````text\n")


@given(st.text(st.sampled_from("ab1.-+=#@<>&[]()!`*_~|\\ /:\n"), max_size=60))
def test_escaped_text_shows_as_it_was(text):
    """Whatever is escaped reads, once rendered, like the text; only pairs of backticks may become code."""
    seen = Seen(READER.render("x " + escape(text)))
    assert seen.tags <= {"p", "code"}
    shown = "".join(seen.words).replace("\u200b", "")
    assert shown.replace("`", "") == "x" + "".join(text.split()).replace("`", "")


@given(st.text(st.sampled_from("1).-+=#> "), max_size=8))
def test_no_text_starts_a_block(text):
    """A task named "1. x" or "# x" starts no list and no heading of its own."""
    assert Seen(READER.render(escape(text + "x"))).tags <= {"p"}


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "http://x y", "https://x>y", "data:text/html,x", HOSTILE, "https://x/`"],
)
def test_only_plain_web_addresses_become_links(address):
    """What is no web address stays text, also where a link was expected."""
    assert "a" not in Seen(READER.render("- " + link(address))).tags


def test_backticks_of_the_rules_become_code():
    """The knowledge base writes settings in backticks, and Markdown shows them as code."""
    assert escape("set `a.b_c` to *x*") == "set `a.b_c` to \\*x\\*"
