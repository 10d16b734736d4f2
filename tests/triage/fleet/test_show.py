"""A fleet report for terminals, programs and browsers."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from jsonschema import Draft202012Validator

from support.fleet_rows import fleet_row
from workerdiag.triage.fleet.collect import merge_tables
from workerdiag.triage.fleet.fleet import summarize
from workerdiag.triage.fleet.report import FleetGap, FleetTable
from workerdiag.triage.fleet.show import FleetReport, fleet_schema

HOSTILE = "node\x1b[31m\u202e<script>alert(1)</script>"


@pytest.fixture
def report() -> FleetReport:
    rows = [fleet_row(number, host=f"node-{number % 30}", lost_compute_s=90.0) for number in range(60)]
    rows += [fleet_row(100 + number, host=HOSTILE, cause="kernel.oom") for number in range(20)]
    rows += [fleet_row(200, cause=None, died_at=None), fleet_row(201, stop_requested=True)]
    rows += [fleet_row(300 + number, distributed_version=HOSTILE) for number in range(3)]
    return summarize(
        merge_tables([rows, rows[:5]]),
        {"kernel.oom": "The kernel killed the worker: the machine or its control group ran out of memory"},
        is_partial=True,
        tables=(FleetTable(path="deaths.csv", kind="triage"), FleetTable(path="watch.db", kind="watcher")),
        gaps=(FleetGap(part="rows", path=f"{HOSTILE}.csv", detail="1 of 9 rows", remedy="write it again"),),
    )


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_the_terminal(report, width):
    """On a narrow one the text of a row stands below its numbers, on a wide one beside them."""
    lines = report.to_text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if "nanny.memory-terminate: " in line]
    assert any(line.lstrip()[0].isdigit() for line in rows) == (width == 160)


def test_the_text_says_what_is_in_the_numbers(report):
    """Losses, stops, repeats, what is known of costs and times, and that something is missing."""
    text = " ".join(report.to_text(width=160).split())
    assert text.startswith(
        "At least 84 workers were lost from 2026-07-20 to 2026-08-01 on 31 hosts in 1 cluster run"
    )
    for sentence in (
        "At least 2 hours of running tasks were lost with them (known of 60 of 84 deaths).",
        "1 requested stop is not counted.",
        "5 reports of deaths that are in another table too are not counted again.",
        "1 death is without a time.",
        'so each number is "at least"',
        "1 of 9 rows (write it again)",
        "Wilson's score intervals",
        "Holm's correction",
        "A watcher forgets deaths after 30 days",
    ):
        assert sentence in text


def test_an_uncertain_host_is_not_named(report):
    """Only hosts far above the rate are listed, with the cause of most of their deaths."""
    text = report.to_text(width=160)
    assert "(20 by kernel.oom)" in text
    assert "node-3" not in text


def test_hostile_text_stays_text(report):
    """Nothing acts upon a terminal or a browser."""
    assert "\x1b" not in report.to_text()
    assert "\u202e" not in report.to_text()
    page = report.to_html()
    assert "<script" not in page
    assert page.isascii()


def test_the_page_loads_nothing_and_is_well_formed(report):
    """It has no script and no address, and each element is closed."""
    page = report.to_html()
    assert "default-src &#39;none&#39;" in page
    assert "http" not in page.replace("http-equiv", "")
    open_tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, _):
            if tag != "meta":
                open_tags.append(tag)

        def handle_startendtag(self, tag, _):
            """Closed as it is opened."""

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Reader().feed(page)
    assert open_tags == []


def test_a_column_of_the_page_has_something_in_it():
    """Logs alone tell no lost compute, and a handful of deaths no curve."""
    rows = [fleet_row(number, lost_compute_s=None) for number in range(3)]
    page = summarize(merge_tables([rows]), {}, is_partial=False).to_html()
    assert '<th scope="col">deaths</th>' in page
    assert "lost compute</th>" not in page
    assert "<td></td>" not in page


def test_the_json_is_what_its_schema_says(report):
    """Each key is always there, also where nothing was lost."""
    schema = fleet_schema()
    Draft202012Validator.check_schema(schema)
    nothing = summarize(merge_tables([]), {}, is_partial=False)
    for each in (report, nothing):
        content = json.loads(each.to_json())
        Draft202012Validator(schema).validate(content)
        assert content == each.to_dict()
        assert set(content) == set(schema["properties"])


def test_where_nothing_was_lost_that_is_said():
    """And whether all could be read."""
    assert str(summarize(merge_tables([]), {}, is_partial=False)) == "No worker was lost"
    assert str(summarize(merge_tables([]), {}, is_partial=True)) == "No worker was lost, as far as could be read"
