"""Charts are well-formed whatever the figures, and no larger than what can be seen."""

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from netem.report.charts import Span, lines, states
from netem.report.fabric import edges, picture
from netem.topology.outcome import DirectionReport

numbers = st.floats(0, 1e12)
points = st.lists(st.tuples(numbers, numbers), max_size=50)


@given(st.dictionaries(st.text(max_size=8), points, max_size=10), numbers)
def test_lines_of_any_figures_are_xml(series, end):
    ET.fromstring(lines({_printable(k): v for k, v in series.items()}, unit="<&>", end=end))


def _printable(text):
    return "".join(letter for letter in text if letter.isprintable())


def test_a_long_line_is_thinned_and_keeps_its_peak():
    series = {"q": [(float(n), 1000.0 if n == 77_777 else 1.0) for n in range(100_000)]}
    drawn = lines(series, unit="", end=1e5)
    assert len(drawn) < 20_000
    root = ET.fromstring(drawn)
    line = next(one for one in root if one.tag.endswith("polyline"))
    assert min(float(p.split(",")[1]) for p in line.get("points").split()) == 26  # the top


def test_states_are_bars_that_say_what_they_are():
    drawn = states({"ev": [Span(0, 5, "#000", "GOOD"), Span(5, 9, "#fff", "<bad>")]}, end=10)
    titles = [one.text for one in ET.fromstring(drawn).iter() if one.tag.endswith("title")]
    assert titles == ["GOOD", "<bad>"]


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
