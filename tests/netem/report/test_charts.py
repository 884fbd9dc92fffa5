"""Charts are well-formed whatever the figures, say what they show, and stay the same."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from netem.report import over_time
from netem.report.charts import lines, states
from netem.report.fabric import edges, picture
from netem.report.series import Span, thinned
from netem.topology.outcome import DirectionReport

numbers = st.floats(0, 1e12)
points = st.lists(st.tuples(numbers, numbers), max_size=50)


@settings(max_examples=10, deadline=None, phases=[Phase.generate])
@given(st.dictionaries(st.text(max_size=8), points, min_size=1, max_size=4), numbers)
def test_lines_of_any_figures_are_xml(series, end):
    series = {_printable(k): v for k, v in series.items()}
    drawn = lines("one", series, unit="<&>", end=end)
    said = {one.text for one in ET.fromstring(drawn).iter() if one.tag.endswith("text")}
    assert {"<&>", *(label for label in series if label.strip())} <= said


def _printable(text):
    return "".join(letter for letter in text if letter.isprintable())


def test_a_long_line_is_thinned_and_keeps_its_peak():
    kept = thinned([(float(n), 1000.0 if n == 77_777 else 1.0) for n in range(100_000)])
    assert len(kept) <= 600
    assert (77_777.0, 1000.0) in kept


def test_states_are_bars_that_say_what_they_are():
    drawn = states(
        "evs", {"ev": [Span(0, 5, "#000", "GOOD"), Span(5, 5, "#fff", "<bad>")]}, end=9
    )
    titles = [one.text for one in ET.fromstring(drawn).iter() if one.tag.endswith("title")]
    assert titles == ["GOOD", "<bad>"]


def test_two_charts_of_a_page_share_no_id_and_each_is_the_same_when_drawn_again():
    one, again, two = (lines(name, {"p": [(1, 2)]}, unit="", end=9) for name in "aab")
    ids = [set(re.findall(r' id="([^"]*)"', drawn)) for drawn in (one, two)]
    assert one == again
    assert ids[0]
    assert not ids[0] & ids[1]
    for drawn in (one, two):
        used = re.findall(r'url\(#(.*?)\)|href="#(.*?)"', drawn)
        assert {a or b for a, b in used} <= set(re.findall(r' id="([^"]*)"', drawn))


@pytest.mark.parametrize("of", ["_lines", "_states"])
def test_without_the_extra_there_are_tables_that_say_how_to_get_charts(monkeypatch, of):
    monkeypatch.setattr(over_time, "find_spec", lambda _name: None)
    if of == "_lines":
        said = over_time._lines("x", {"p0": [(1, 2), (2, 4)]}, unit="Gbit/s", end=9)
        assert '<td>p0</td><td class="n">4</td><td class="n">3</td>' in said
    else:
        said = over_time._states("x", {"ev": [Span(5, 9, "", "<bad>")]}, end=9)
        assert '<td>ev</td><td class="n">5us</td><td>&lt;bad&gt;</td>' in said
    assert "fabriclab[report]" in said
    assert "<svg" not in said


def test_a_fabric_has_its_hosts_below_and_what_is_lost_in_red():
    links = [
        DirectionReport("h0:p0->s0:e0", frames=9, lost=2),
        DirectionReport("s0:e0->h0:p0"),
        DirectionReport("s0:e1->t0:e0"),
    ]
    assert list(edges(links)) == [("h0", "s0"), ("s0", "t0")]
    root = ET.fromstring(picture(links, ["h0"]))
    colours = [one.get("stroke") for one in root if one.tag.endswith("path")]
    assert colours == ["#c0392b", "#999"]
    height = {one.text: float(one.get("y")) for one in root if one.tag.endswith("text")}
    assert height["h0"] > height["s0"] > height["t0"]
