"""Elements of SVG."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from workerdiag.rendering.drawing import drawing, element, path, percent


def test_an_element_is_escaped_wherever_text_stands():
    """Text cannot end an attribute or begin an element; markup of ours stays markup."""
    made = element("text", "<b>&", Markup("<g/>"), class_='"x', text_anchor="end", y=None)
    assert made == '<text class="&#34;x" text-anchor="end">&lt;b&gt;&amp;<g/></text>'
    assert element("line", x1=1.0, y1=2.345) == '<line x1="1" y1="2.35"/>'


def test_a_drawing_has_a_name_and_a_description():
    """A screen reader says both; they come first, as SVG 2 demands."""
    made = ET.fromstring(drawing("Memory", "It grew.", 10, [element("g")]))
    assert made.get("role") == "img"
    assert [each.tag for each in made] == ["title", "desc", "g"]
    assert made[0].text == "Memory"


@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1))
def test_a_path_has_only_numbers(points):
    """Whatever was measured, a browser can draw it."""
    text = path(points)
    assert not set(text) - set("ML0123456789.- ")


def test_no_points_make_no_path():
    """An empty path is left empty instead of broken."""
    assert path([]) == ""
    assert path([(0, 0), (1, 2)], closed=True) == "M0 0L1 2Z"
    assert percent(1 / 3) == "33.33%"
