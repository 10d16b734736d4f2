"""What a notebook or a browser shows: everything inside, nothing loaded, nothing let through."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.findings import NOON_ISH, dead, drawn, explained, history, hostile, nanny_kill, no_death, unknown
from workerdiag import Diagnosis
from workerdiag.model.diagnosis import Blame
from workerdiag.model.timeline import Moment, TaskSpan, Timeline
from workerdiag.rendering.html import code, prose, render_html, unbroken

BUILDS = [explained, no_death, unknown, hostile, drawn]
VOID = {"meta", "br", "hr", "wbr"}
TAGS = set(
    "html head body meta title style main div header section footer h1 h2 h3 h4 dl dt dd p span b ul ol li pre "
    "code a wbr details summary button figure figcaption table thead tbody tr th td "
    "svg desc g line rect circle path text".split()
)
ATTRIBUTES = set(
    "class lang href rel charset name content http-equiv type hidden aria-live aria-hidden aria-label role "
    "tabindex scope x y x1 x2 y1 y2 cx cy r rx d width height viewbox preserveaspectratio overflow "
    "text-anchor vector-effect".split()
)


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains where tags do not close."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self._open = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        """Note the tag and what it points to."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        """Note that the tag is over."""
        assert self._open.pop() == tag

    def handle_data(self, data):
        """Note the text."""
        if not {"style", "script"} & set(self._open):
            self.text += data


def test_the_report_is_all_there():
    """Lead, why, advice, evidence, deaths, gaps and links, in a fragment as on a page."""
    page = Page(render_html(explained()))
    text = " ".join(page.text.split())
    for part in (
        "Cause, 2026-11-21 10:02:03 UTC The nanny killed the worker: above its memory limit",
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
def test_nothing_is_loaded_and_only_our_script_runs(build, page):
    """No image, no style sheet or font from elsewhere, no handler, whatever a log says; a fragment has no script."""
    html = render_html(build(), page=page)
    seen = Page(html)
    assert set(seen.tags) <= TAGS | ({"script"} if page else set())
    assert seen.tags.count("script") == int(page)
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES
    assert all(value.startswith("https://") for name, value in seen.attributes if name == "href")
    assert "url(" not in html
    assert "@import" not in html


def test_the_page_forbids_every_request_and_every_other_script():
    """The policy of the page names the hash of its script (CSP, level 3), so that nothing else can run."""
    html = render_html(hostile(), page=True)
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = (value for name, value in Page(html).attributes if name == "content" and "default-src" in value)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_hostile_text_is_shown_as_text():
    """A script in a log is words on the page."""
    page = Page(render_html(hostile()))
    assert "<script>alert(1)</script>" in page.text
    assert "script" not in page.tags
    assert "img" not in page.tags


@pytest.mark.parametrize("build", BUILDS)
def test_it_reads_the_same_in_any_encoding(build):
    """The text is ASCII, so a file opened without its encoding, or a notebook, shows no garbage."""
    assert render_html(build(), page=True).isascii()


def test_a_notebook_gets_a_fragment_and_a_file_a_document():
    """In a notebook there is no second document, and a file is a whole one that follows the system's dark mode."""
    fragment, document = render_html(explained()), render_html(explained(), page=True)
    assert fragment.startswith('<div class="workerdiag workerdiag-explained"')
    assert "<html" not in fragment
    assert "<h1" not in fragment
    assert document.startswith("<!doctype html>")
    assert "color-scheme: light dark" in document
    assert '<div class="workerdiag workerdiag-explained"' in document


def test_the_style_touches_nothing_else_in_the_notebook():
    """Every rule of the fragment is about the report alone."""
    style = render_html(drawn()).partition("<style>")[2].partition("</style>")[0]
    rules = re.sub(r"@(?:media|supports)[^{]*\{((?:[^{}]*\{[^{}]*\})*)\s*\}", r"\1", style)
    selectors = [each for rule in rules.split("}")[:-1] for each in rule.partition("{")[0].split(",")]
    assert selectors
    assert all(each.strip().startswith(".workerdiag") for each in selectors)


def test_a_browser_that_cannot_mix_colours_has_all_of_them():
    """What is mixed stands behind a question whether the browser can, and has a plain colour before."""
    style = render_html(drawn(), page=True)
    asked = re.findall(r"@supports \(color: color-mix[^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}", style)
    mixed = [name for each in asked for name in re.findall(r"(--[\w-]+): color-mix", each)]
    assert sum(each.count("color-mix") for each in asked) == style.count("color-mix")
    assert mixed
    assert all(style.index(f"{name}: ") < style.index("@supports") for name in mixed)


def test_few_fonts_are_asked_for():
    """Each size and weight costs a browser a question to another process before it can show anything."""
    style = render_html(drawn(), page=True)
    sizes = set(re.findall(r"font(?:-size)?: ([\d.]+(?:rem|px))", style))
    weights = set(re.findall(r"font-weight: (\d+)", style))
    families = {
        name.strip() for each in re.findall(r"(?:family|mono): ([^;]+);", style) for name in each.split(",")
    }
    assert sizes <= {"12px", ".875rem", "1rem", "1.125rem", "1.375rem", "1.45rem", "1.75rem"}
    assert weights == {"400", "600"}
    assert families == {"system-ui", "sans-serif", "ui-monospace", "monospace"}


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        (explained(), "sure"),
        (explained(causes=(nanny_kill(probability=0.7),), unknown_probability=0.3), "likely"),
        (unknown(), "open"),
        (no_death(), "sure"),
        (no_death(gaps=explained().gaps), "likely"),
    ],
)
def test_how_sure_it_is_shows_as_a_colour(findings, status):
    """Sure, likely and open can be told apart at a glance; words say the same."""
    assert f'<header class="wd-{status}">' in render_html(findings)


def test_without_anything_to_draw_there_is_no_drawing_of_it():
    """No empty frame: neither memory nor time is drawn where nobody told of any."""
    quiet = explained(deaths=(dead(when=None, rss_bytes=None, limit_bytes=None),))
    assert render_html(quiet, page=True).count('class="wd-chart"') == 0
    assert render_html(drawn(), page=True).count('class="wd-chart"') == 2


def test_the_first_advice_is_not_said_twice():
    """What to do now stands at the top with its command, and the list goes on with the next advice."""
    text = " ".join(Page(render_html(explained(), page=True)).text.split())
    assert text.count("Give each worker more memory") == 1
    assert text.count("dask worker --memory-limit 5GiB") == 1
    assert "What else to do Make the chunks smaller." in text


def test_a_large_incident_stays_small():
    """A thousand deaths with the longest of everything make a page below 300 kB."""
    key = "k" * 4000
    tasks = tuple(TaskSpan(key=key, thread=f"{n % 9}", started_at=NOON_ISH - n) for n in range(60))
    moments = tuple(Moment(at=NOON_ISH - n / 9, kind="trouble", text=key) for n in range(60))
    histories = tuple(history(tasks=tasks, samples=history().samples * 4) for _ in range(8))
    many = drawn(
        deaths=tuple(dead(when=NOON_ISH + n, reason=key) for n in range(1000)),
        timeline=Timeline(histories=histories, moments=moments),
    )
    assert len(render_html(many, page=True)) < 300_000


def test_the_notebook_repr_is_the_fragment():
    """A diagnosis as the last value of a cell shows itself: the lead, and every section folded."""
    diagnosis = Diagnosis(outcome="explained", summary="-", causes=explained().causes)
    assert diagnosis._repr_html_() == render_html(diagnosis, folded=True)
    page = Page(diagnosis._repr_html_())
    assert "h4" not in page.tags
    assert page.tags.count("details") == page.tags.count("summary") > 3


def test_a_link_needs_a_web_address():
    """A rule pack cannot make a report run anything when its reference is clicked."""
    page = Page(render_html(explained(causes=(nanny_kill(references=("javascript:alert(1)",)),))))
    assert "a" not in page.tags
    assert "javascript:alert(1)" in page.text


@given(st.text(max_size=60))
@example("0000000000000000000000000000=0")  # a long word may be broken
def test_prose_shows_every_character(text):
    """Escaping loses nothing but the backticks around code."""
    page = Page(f"<p>{prose(text)}</p>")
    assert set(page.tags) <= {"p", "code", "span", "wbr"}
    assert page.text.replace("`", "") == text.replace("`", "")


def test_options_dates_and_sizes_are_not_broken():
    """What is typed is read as one word; a path, a range and a very long option may be broken."""
    whole = '<span class="wd-unbroken">{}</span>'
    assert prose("give `dask worker --memory-limit 1GiB`") == (
        f"give <code>dask worker {whole.format('--memory-limit')} 1GiB</code>"
    )
    assert unbroken("lost on 2026-11-21 <b>") == f"lost on {whole.format('2026-11-21')} &lt;b&gt;"
    assert unbroken("above 1.5 GiB, Ctrl-C") == f"above {whole.format('1.5 GiB')}, {whole.format('Ctrl-C')}"
    for text in ("a--b", "12 GiBs", "--", "---", "2026-11-21-1", f"--{'x' * 30}"):
        assert unbroken(text) == text


def test_code_on_a_phone_breaks_between_names_and_before_its_comment():
    """A long call is cut behind a parenthesis and not within a name; the characters to copy stay the same."""
    line = "client.recreate_error_locally(future)      # raises again, here\nx < y"
    assert code(line) == (
        'client.recreate_error_locally(<wbr>future)<span class="wd-comment">      # raises again, here\n</span>x &lt; y'
    )
    assert unbroken("/srv/dask/logs/station-7/worker.log:15") == (
        "/srv/<wbr>dask/<wbr>logs/<wbr>station-7/<wbr>worker.log:15"
    )


def test_where_no_one_needs_to_act_what_could_be_changed_is_folded():
    """A page that says to do nothing does not begin with four things to do."""
    page = render_html(explained(blame=Blame(verdict="nobody")), page=True)
    assert '<details class="wd-section"><summary class="wd-heading">What to do</summary>' in page
