"""Tasks, deaths and moments on one axis of time."""

from __future__ import annotations

from attrs import evolve

from support.findings import NOON_ISH, dead, drawn, explained, history, hostile, no_death
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import Moment, Timeline
from workerdiag.rendering.task_timeline import _labels, timeline_figure


def test_tasks_are_drawn_by_thread_and_the_blamed_one_stands_out():
    """What ran, what had ended, and what Dask blames differ in colour."""
    svg = timeline_figure(drawn()).svg
    assert svg.count('class="wd-task wd-suspect"') == 1
    assert svg.count('class="wd-task wd-running"') == 1
    assert svg.count('class="wd-task wd-ended"') == 1


def test_the_moments_are_numbered_in_the_order_of_time():
    """The list below has the same numbers: pause, first victim, the one that followed."""
    figure = timeline_figure(drawn())
    assert [each.partition(":")[0] for each in figure.moments] == ["-8 s", "0 s", "+4 s"]
    assert "paused" in figure.moments[0]
    assert "first victim" in figure.moments[1]
    assert "tcp://10.0.0.5:34938" in figure.moments[2]
    assert figure.svg.count("<circle") == 3


def test_a_cascade_is_said_in_a_sentence():
    """Who was lost first, how many followed, and which task all of them had."""
    notes = " ".join(timeline_figure(drawn()).notes)
    assert "tcp://10.0.0.4:34937 was lost first; 1 more worker followed within 4 s." in notes
    assert "All of them had the task load-1." in notes


def test_one_death_and_nothing_else_is_not_drawn():
    """A single cross on an axis tells nobody anything."""
    assert timeline_figure(explained()) is None
    assert timeline_figure(no_death()) is None
    assert timeline_figure(drawn(deaths=(dead(when=None),))) is None


def test_the_removal_that_is_the_death_is_not_told_twice():
    """The scheduler removes whoever died; that is one moment."""
    removal = Moment(at=NOON_ISH + 0.1, kind="removal", identity=dead().identity)
    figure = timeline_figure(drawn(timeline=Timeline(histories=(history(),), moments=(removal,))))
    assert not any("removed" in each for each in figure.moments)


def test_of_very_much_the_deaths_and_the_nearest_are_drawn():
    """A crash loop of hundreds stays readable, and says how much is left out."""
    deaths = tuple(dead(identity=Identity(worker=f"tcp://10.0.0.9:{n}"), when=NOON_ISH + n) for n in range(300))
    figure = timeline_figure(drawn(deaths=deaths))
    assert len(figure.moments) == 12
    assert figure.more == "and 289 more"
    assert figure.svg.count("wd-cross") == 6


def test_times_that_make_no_sense_are_survived():
    """Clocks that differ by years, and all at the same moment."""
    for at in (0.0, 9e10, NOON_ISH):
        moment = Moment(at=at, kind="restart")
        spans = tuple(evolve(each, started_at=at) for each in history().tasks)
        histories = (history(tasks=spans),)
        assert timeline_figure(drawn(timeline=Timeline(histories=histories, moments=(moment,)))).svg


def test_hostile_keys_stay_text():
    """The key of a task is what somebody's code made."""
    svg = timeline_figure(hostile()).svg
    assert "<script" not in svg
    assert "<img" not in svg


def test_the_same_message_is_one_moment():
    """Two logs and a list of lines as JSON tell of one thing: it is numbered once, in the clearer words."""
    text = "Task t_grow-1 marked as failed because 4 workers died while trying to run it"
    moments = tuple(
        Moment(at=NOON_ISH + late_s, kind=kind, identity=Identity(worker=worker), text=said)
        for late_s, kind, worker, said in (
            (1.4, "trouble", "tcp://10.0.0.4:34937", text),
            (1.6, "blame", None, f'{text}"'),
            (1.7, "trouble", "tcp://10.0.0.5:34938", f'{text}" ],'),
        )
    )
    shown = timeline_figure(drawn(timeline=Timeline(histories=(history(),), moments=moments))).moments
    assert [each for each in shown if "t_grow-1" in each] == [f"+1.6 s: Dask gave up: {text}"]


def test_a_key_that_does_not_fit_its_bar_ends_in_dots():
    """No name is cut in the middle of a letter, or lies under the cross; a phone shows less of it."""
    assert list(_labels("load-station-7", 0.9, 5)) == ['<text x="5" y="13">load-station-7</text>']
    assert list(_labels("load-station-7", 0.2, 12)) == [
        '<text x="5" y="13" class="wd-narrow">load-s…</text>',
        '<text x="5" y="13" class="wd-wide">load-station-7</text>',
    ]
    assert list(_labels("load-station-7", 0.02, 12)) == []
