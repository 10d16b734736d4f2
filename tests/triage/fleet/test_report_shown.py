"""A fleet report for terminals, programs and browsers."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from jsonschema import Draft202012Validator

from support.fleet_rows import BEGIN, fleet_row
from workerdiag.triage.fleet.collect import merge_tables
from workerdiag.triage.fleet.fleet import summarize
from workerdiag.triage.fleet.report import FleetGap, FleetReport, FleetTable, fleet_schema

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
    """Only a command is not broken."""
    lines = [line for line in report.to_text(width=width).splitlines() if "workerdiag knowledge" not in line]
    assert max(map(len, lines)) <= width


def test_the_text_says_what_is_in_the_numbers(report):
    """Losses, stops, repeats, what is known of costs and times, and that something is missing."""
    text = " ".join(report.to_text(width=160).split())
    assert text.startswith("Losses At least 84 workers were lost on 31 hosts in 1 cluster run When From 2026-07-20")
    for sentence in (
        "to 2026-08-01, 1 death without a time",
        "At least 2 hours of running tasks (known of 60 of 84 deaths)",
        "1 requested stop, not counted",
        "5 reports of deaths that are in another table too",
        'so each number is "at least"',
        "1 of 9 rows To close it: write it again",
        "Wilson's score intervals",
        "A watcher forgets deaths after 30 days",
    ):
        assert sentence in text


def test_a_share_is_told_with_its_number(report):
    """Of causes for all the time and for its second half, of hosts with what an equal share would be."""
    text = " ".join(report.to_text(width=160).split())
    assert "75% of 84 deaths (65% to 83%): nanny.memory-terminate" in text
    assert "Second half: 0% of 3 since 2026-07-26" in text
    assert "Hosts (an equal share of 31 is 3%) - 24% of 84 losses: node" in text
    assert "(20 deaths, 20 by kernel.oom)" in text


def test_what_to_do_is_about_the_most_frequent_known_cause(report):
    """Where nothing was lost nothing is to be done, unless something could not be read."""
    assert "workerdiag knowledge show nanny.memory-terminate\n" in report.to_text()
    assert "Nothing needs to be done" in str(summarize(merge_tables([]), {}, is_partial=False))
    gaps = (FleetGap(part="file", path="a.csv", detail="torn"),)
    unread = summarize(merge_tables([]), {}, is_partial=True, gaps=gaps)
    assert "it is unknown whether workers were lost" in unread.to_text(width=160)
    assert "Read again what could not be read" in str(unread)


def test_hostile_text_stays_text(report):
    """Nothing acts upon a terminal or a browser."""
    assert "\x1b" not in report.to_text()
    assert "\u202e" not in report.to_text()
    page = report.to_html()
    assert "<script>alert" not in page
    assert page.isascii()


def test_the_page_loads_nothing_and_is_well_formed(report):
    """It has no address and no script but the one that copies commands, and each element is closed."""
    page = report.to_html()
    assert "default-src &#39;none&#39;" in page
    assert "http" not in page.replace("http-equiv", "")
    open_tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, _):
            if tag not in {"meta", "wbr"}:
                open_tags.append(tag)

        def handle_startendtag(self, tag, _):
            """Closed as it is opened."""

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Reader().feed(page)
    assert open_tags == []


def test_what_is_not_known_is_not_on_the_page():
    """Logs alone tell no lost compute, and deaths of one hour no curve."""
    rows = [fleet_row(number, lost_compute_s=None, died_at=BEGIN + 60 * number) for number in range(3)]
    page = summarize(merge_tables([rows]), {}, is_partial=False).to_html()
    assert "Deaths: 3 since 2026-07-20" in page
    assert "Lost compute" not in page
    assert "Over time" not in page


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
    assert "Losses    No worker was lost\n" in str(summarize(merge_tables([]), {}, is_partial=False))
    assert "No worker was lost, as far as could be read\n" in str(summarize(merge_tables([]), {}, is_partial=True))
