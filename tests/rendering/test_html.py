"""
What a notebook or a browser shows: everything inside, nothing loaded, nothing let through.
"""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.findings import explained, hostile, nanny_kill, no_death, unknown
from workerdiag import Diagnosis
from workerdiag.rendering.html import prose, render_html

BUILDS = [explained, no_death, unknown, hostile]
VOID = {"meta", "br", "hr"}


class Page(HTMLParser):
    """
    Tags, attributes and text of a page; complains where tags do not close.
    """

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self._open = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        """
        Note the tag and what it points to.
        """
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        """
        Note that the tag is over.
        """
        assert self._open.pop() == tag

    def handle_data(self, data):
        """
        Note the text.
        """
        if "style" not in self._open:
            self.text += data


def test_the_report_is_all_there():
    """
    Lead, why, advice, evidence, deaths, gaps and links.
    """
    page = Page(render_html(explained()))
    text = " ".join(page.text.split())
    for part in (
        "Cause The nanny killed the worker: above its memory limit",
        "97%, very likely",
        "distributed.worker.memory.terminate (95%)",
        "dask worker --memory-limit 5GiB",
        "exceeded 95% memory budget",
        "killed by signal 9 (SIGKILL)",
        "kernel log: forbidden",
        "fingerprint 3f2a9c01",
    ):
        assert part in text
    assert ("href", "https://distributed.dask.org/en/stable/worker-memory.html") in page.attributes


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("page", [False, True])
def test_nothing_is_loaded_and_nothing_runs(build, page):
    """
    No script, no image, no style sheet or font from elsewhere, no handler, whatever a log says.
    """
    seen = Page(render_html(build(), page=page))
    known = "html head body meta title style div dl dt dd p h4 ul ol li pre code i a details summary footer"
    assert set(seen.tags) <= set(known.split())
    assert {name for name, _ in seen.attributes} <= {
        "class",
        "lang",
        "href",
        "rel",
        "charset",
        "name",
        "content",
    }
    assert all(value.startswith("https://") for name, value in seen.attributes if name == "href")
    assert "url(" not in render_html(build())
    assert "@import" not in render_html(build())


def test_hostile_text_is_shown_as_text():
    """
    A script in a log is words on the page.
    """
    page = Page(render_html(hostile()))
    assert "<script>alert(1)</script>" in page.text
    assert "script" not in page.tags
    assert "img" not in page.tags


@pytest.mark.parametrize("build", BUILDS)
def test_it_reads_the_same_in_any_encoding(build):
    """
    The text is ASCII, so a file opened without its encoding, or a notebook, shows no garbage.
    """
    assert render_html(build(), page=True).isascii()


def test_a_notebook_gets_a_fragment_and_a_file_a_document():
    """
    In a notebook there is no second document, and a file is a whole one that follows the system's dark mode.
    """
    fragment, document = render_html(explained()), render_html(explained(), page=True)
    assert fragment.startswith('<div class="workerdiag workerdiag-explained"')
    assert "<html" not in fragment
    assert document.startswith("<!doctype html>")
    assert "color-scheme: light dark" in document
    assert fragment in document


def test_the_style_touches_nothing_else_in_the_notebook():
    """
    Every rule of the fragment is about the report alone.
    """
    style = render_html(explained()).partition("<style>")[2].partition("</style>")[0]
    selectors = [each for rule in style.split("}")[:-1] for each in rule.partition("{")[0].split(",")]
    assert selectors
    assert all(each.strip().startswith(".workerdiag") for each in selectors)


def test_each_outcome_has_its_colour():
    """
    The three answers can be told apart at a glance.
    """
    assert [f"workerdiag-{each().outcome}" in render_html(each()) for each in (explained, no_death, unknown)]
    style = render_html(explained())
    for outcome in ("explained", "no-death", "unknown"):
        assert f".workerdiag-{outcome} >" in style


def test_the_notebook_repr_is_the_fragment():
    """
    A diagnosis as the last value of a cell shows itself: the lead, and every section folded.
    """
    diagnosis = Diagnosis(outcome="explained", summary="-", causes=explained().causes)
    assert diagnosis._repr_html_() == render_html(diagnosis, folded=True)
    page = Page(diagnosis._repr_html_())
    assert "h4" not in page.tags
    assert page.tags.count("details") == page.tags.count("summary") > 3


def test_a_link_needs_a_web_address():
    """
    A rule pack cannot make a report run anything when its reference is clicked.
    """
    page = Page(render_html(explained(causes=(nanny_kill(references=("javascript:alert(1)",)),))))
    assert "a" not in page.tags
    assert "javascript:alert(1)" in page.text


@given(st.text(max_size=60))
def test_prose_shows_every_character(text):
    """
    Escaping loses nothing but the backticks around code.
    """
    page = Page(f"<p>{prose(text)}</p>")
    assert set(page.tags) <= {"p", "code"}
    assert page.text.replace("`", "") == text.replace("`", "")
