"""Names: one parser, and refusals that say what is legal and what was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.topology.load import load_lab
from netem.topology.names import NameRefusedError, Names, check_port_name, is_of
from netem.topology.planner import plan_lab

NAMES = Names(
    ["h0", "h1", "t0-p0-0"],
    [("h0:p0", "t0-p0-0:e0"), ("t0-p0-0:e1", "h1:p0"), ("h0:p1", "h1:p1"), ("h0:p2", "h1:p2")],
)


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [(None, True), ("1", True), ("1/h0->h2", True), ("1/h0->h2/0", True), ("1/h0", False),
     ("", False), ("1/h0->h2/0/0", False)],
)  # fmt: skip
def test_a_flow_is_named_whole_or_by_its_item_or_its_pair(wanted, meant):
    assert is_of("1/h0->h2/0", wanted) is meant
    assert not is_of("11/h0->h20/0", wanted) or wanted is None


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("h0:p0--t0-p0-0:e0", "h0:p0--t0-p0-0:e0"),
        ("t0-p0-0:e0--h0:p0", "h0:p0--t0-p0-0:e0"),
        ("h0--t0-p0-0", "h0:p0--t0-p0-0:e0"),
        ("h1--t0-p0-0", "t0-p0-0:e1--h1:p0"),
        ("h1:p2--h0:p2", "h0:p2--h1:p2"),
    ],
)
def test_a_link_has_a_full_and_a_short_name_in_either_order(text, link):
    assert NAMES.link(text) == link


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("h0->t0-p0-0", ("h0:p0", "t0-p0-0:e0")),
        ("t0-p0-0->h0", ("t0-p0-0:e0", "h0:p0")),
        ("h1:p1->h0:p1", ("h1:p1", "h0:p1")),
    ],
)
def test_a_direction_has_a_full_and_a_short_name(text, ends):
    assert NAMES.direction(text) == ends


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("h0:p0", ("h0:p0",)),
        ("t0-p0-0->h1", ("t0-p0-0:e1",)),
        ("t0-p0-0--h1", ("t0-p0-0:e1", "h1:p0")),
    ],
)
def test_what_sends_is_a_port_a_direction_or_both_ends_of_a_link(text, ports):
    assert NAMES.egresses(text) == ports


@pytest.mark.parametrize(
    ("call", "text", "message"),
    [
        ("node", "h3", "no node h3; did you mean h0 or h1; legal: h0, h1, t0-p0-0"),
        ("port", "h0", "h0 is not a port; write for example h0:p0"),
        ("port", "h0:p9", "no link at h0:p9; did you mean h0:p0 or h0:p1 or h0:p2;"
                          " ports of h0: h0:p0, h0:p1, h0:p2"),
        ("link", "h0--h1", "h0--h1 is one of 2 links; legal: h0:p1--h1:p1, h0:p2--h1:p2"),
        ("link", "h0", "h0 is not a link; write for example h0:p0--h1:p0 or h0--h1"),
        ("link", "h0--h1--h0", "h0--h1--h0 is not a link;"
                               " write for example h0:p0--h1:p0 or h0--h1"),
        ("link", "h0:p0--h1", "h0:p0--h1 is a port and a node; write h0:p0--h1:p0 or h0--h1"),
        ("link", "h0:p0--h1:p0",
         "no link between h0:p0 and h1:p0; h0:p0 is linked to t0-p0-0:e0"),
        ("direction", "h0--h1", "h0--h1 is not a direction;"
                                " write for example h0:p0->h1:p0 or h0->h1"),
        ("egress", "h0--t0-p0-0",
         "h0--t0-p0-0 has two directions; write one: h0->t0-p0-0"),
        ("node", "a\nb", "no node 'a\\nb'; legal: h0, h1, t0-p0-0"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_legal(call, text, message):
    with pytest.raises(NameRefusedError) as refusal:
        getattr(NAMES, call)(text)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("port", "kind", "message"),
    [
        ("p16", "host", "p16 is no port of a host; legal: p0 to p15"),
        ("e0", "host", "e0 is no port of a host; legal: p0 to p15"),
        ("p00", "host", "p00 is no port of a host; legal: p0 to p15"),
        ("br0", "bridge", "br0 is no port of a bridge; legal: e0 to e9999"),
        ("p0", "switch", "p0 is no port of a switch; legal: e0 to e9999"),
        ("a-name-too-long-for-the-kernel", "bridge",
         "a-name-too-long-for-the-kernel has 30 characters; the kernel allows an interface 15"),
    ],
)  # fmt: skip
def test_a_port_name_that_no_interface_could_have_is_refused(port, kind, message):
    with pytest.raises(NameRefusedError) as refusal:
        check_port_name(port, kind)
    assert str(refusal.value) == message


def test_a_plan_gives_the_same_names_as_its_lab():
    plan = plan_lab(
        load_lab(
            "topology: {nodes: {h0: {}, h1: {}}, links: [{endpoints: ['h0:p0', 'h1:p0']}]}"
        )
    )
    assert Names.of(plan).link("h1--h0") == "h0:p0--h1:p0"


@given(st.text())
def test_any_text_is_a_name_or_refused_on_one_line(text):
    said = []
    for parse in (NAMES.node, NAMES.port, NAMES.link, NAMES.direction, NAMES.egresses):
        try:
            parse(text)
        except NameRefusedError as refusal:
            said.append(str(refusal))
    assert all(line.isprintable() for line in said)
