"""Any text at all gives a Lab, or a LabError whose every line is one printable line."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import netem.labs
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

TEXTS = [
    path.read_text() for path in sorted(Path(netem.labs.__file__).parent.glob("*/lab.yaml"))
]
SCALARS = st.sampled_from(
    ["", "0", "-1", "5ms", "1%", "h0", "h0:p0", "h0->h1", "h0--h1", "[]", "{}", "true", "all",
     "*x", "&x", "auto", "1GiB", "100gbit", "drop", "write", "rc", "+7", "999999999", "'", "!!",
     "clos", "ring", "fat_tree", "4", "3:1", "40km", "none", "same", "fc00:1::e", "fe80::2",
     "t0-p0-0", "End.X", "uN", "linux", "switch", "bridge", "tc", "h_encaps"]
)  # fmt: skip
SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def judge(text):
    """Load and plan; return the problems, none for a lab that could be planned."""
    try:
        plan_lab(load_lab(text))
    except LabError as refusal:
        return refusal.problems
    return ()


def assert_lines(problems):
    assert all(line.isprintable() and line for line in problems), problems


@given(st.text())
def test_any_text_is_a_lab_or_refused(text):
    assert_lines(judge(text))


@pytest.mark.slow
@SLOW
@given(st.data())
def test_a_built_in_lab_with_a_piece_cut_out_is_a_lab_or_refused(data):
    text = data.draw(st.sampled_from(TEXTS))
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    assert_lines(judge(text[:start] + text[stop:]))


@pytest.mark.slow
@SLOW
@given(st.data())
def test_a_built_in_lab_with_a_value_changed_is_a_lab_or_refused(data):
    lines = data.draw(st.sampled_from(TEXTS)).splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    words = lines[number].split(" ")
    place = data.draw(st.integers(0, len(words) - 1))
    words[place] = data.draw(SCALARS)
    lines[number] = " ".join(words)
    assert_lines(judge("\n".join(lines)))


TREES = st.recursive(
    SCALARS.filter(lambda text: text not in {"*x", "&x", "'", "!!"}),
    lambda inner: st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]")
    | st.dictionaries(
        st.sampled_from(
            ["name", "nodes", "links", "endpoints", "kind", "mode", "delay", "loss", "model",
             "op", "from", "to", "size", "count", "at", "on", "set", "do", "where", "psn", "p",
             "above", "h0->h1", "mtu", "rc", "h0", "h1", "link", "host", "pattern", "after",
             "metric", "fabric", "planes", "t0", "t1", "hosts_per_t0", "k", "switches",
             "hosts", "distance", "oversubscription", "uplink", "queue", "queues", "3", "ecn",
             "min", "max", "pfc", "xoff", "trim", "keep", "classify", "dscp", "26", "buffer",
             "total", "watchdog", "balance", "fields", "hash_seed", "sids", "sid", "behaviour",
             "steer", "path", "encaps", "usid", "down", "flap", "up", "hold", "kill", "for",
             "engine", "flow", "t0-p0-0", "s1", "forward", "forwarder"]
        ),
        inner,
        max_size=4,
    ).map(lambda v: "{" + ", ".join(f"{key}: {value}" for key, value in v.items()) + "}"),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@SLOW
@given(
    st.sampled_from(
        ["topology", "topology.nodes", "topology.links", "defaults", "transports", "workload",
         "faults", "expect", "capture", "limit", "dilation", "seed", "name", "fabric", "srv6",
         "defaults.switch", "defaults.switch.queue", "topology.nodes.t0-p0-0",
         "topology.nodes.s1", "workload[0].path", "faults[0]"]
    ),
    TREES,
    st.sampled_from(TEXTS),
)  # fmt: skip
def test_a_section_of_any_shape_is_read_or_refused(key, tree, text):
    try:
        plan_lab(load_lab(text, overrides={key: tree}))
    except LabError as refusal:
        assert_lines(refusal.problems)
