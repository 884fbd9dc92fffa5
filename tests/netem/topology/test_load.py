"""Lab files: each refusal by its exact line, all at once, and what is meant by silence."""

import pytest

from netem.impair.model import FourState, GilbertElliott, RandomLoss
from netem.topology.errors import MAX_PROBLEMS, LabError
from netem.topology.load import load_lab

TOPOLOGY = """
topology:
  nodes: {h0: {}, h1: {}}
  links:
    - {endpoints: ["h0:p0", "h1:p0"]}
"""
BRIDGED = """
topology:
  nodes: {h0: {}, h1: {}, br0: {kind: bridge}, br1: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "br0:e0"]}
    - {endpoints: ["br0:e1", "br1:e0"]}
    - {endpoints: ["br1:e1", "h1:p0"]}
"""


def with_link(keys):
    return TOPOLOGY.replace('"h1:p0"]}', f'"h1:p0"], {keys}}}')


def with_item(keys):
    return f"{TOPOLOGY}workload:\n  - {{op: write, from: h0, to: h1, size: 1KiB, {keys}}}"


def problems(text, **overrides):
    with pytest.raises(LabError) as refusal:
        load_lab(text, overrides=overrides)
    return list(refusal.value.problems)


LAB_KEYS = (
    "name, fabric, topology, seed, dilation, limit, defaults, transports, workload, srv6,"
    " overlay, faults, expect, sample, capture"
)
LINK_SUM = (
    "Ethernet 14 | IPv6 40 + UDP 8 + BTH 12 + RETH 16 + ImmDt 4 + payload 4096 + ICRC 4"
    " = 4180 (frame 4194)"
)
RNR = "legal: 0.01ms (code 1) to 491.52ms (31), and 655.36ms (0, the longest)"
REFUSED = [
    # Unknown keys
    ("sed: 1" + TOPOLOGY, f"sed: unknown key; did you mean seed; legal: {LAB_KEYS}"),
    (
        TOPOLOGY.replace("h1: {}", "h1: {kin: host}"),
        "topology.nodes.h1.kin: unknown key; did you mean kind;"
        " legal: kind, mode, stack, family, command, usid, sids, steer, forward, hash_seed,"
        " latency, buffer, classify, queue, queues, watchdog, balance, icmp_errors,"
        " srv6_errors",
    ),
    (
        TOPOLOGY + "transports: {rc: {rnr-timer: 0.64ms}}",
        "transports.rc.rnr-timer: unknown key; did you mean rnr_timer; legal: kind, mtu,"
        " connect, timeout, retry, rnr_retry, rnr_timer, max_rd_atomic, max_dest_rd_atomic,"
        " window, credits, tc, dscp, ecn, pcp, ack_dscp, dcqcn, path, path_back, encaps",
    ),
    # Missing units
    (
        with_link("delay: 5"),
        "topology.links[0].delay: 5 has no unit; write 5ms (ns, us, ms, s)",
    ),
    (
        with_link("rate: 10"),
        "topology.links[0].rate: 10 has no unit; write 10gbit"
        " (bit, kbit, mbit, gbit, tbit), or none",
    ),
    (
        with_link("limit: 65536"),
        "topology.links[0].limit: 65536 has no unit; write 65536B (B, KiB, MiB, GiB)",
    ),
    (with_link("loss: 1"), "topology.links[0].loss: 1 has no unit; write 1% (0% to 100%)"),
    (
        with_item("at: 5"),
        "workload[0].at: 5 has no unit; write 5ms (ns, us, ms, s)",
    ),
    # Percentages: field report I13
    (
        with_link("loss: 100.1%"),
        "topology.links[0].loss: 100.1% is out of range; legal: 0% to 100%",
    ),
    (with_link("loss: -1%"), "topology.links[0].loss: -1% is out of range; legal: 0% to 100%"),
    (
        with_link("h0->h1: {corrupt: 101%}"),
        "topology.links[0].h0->h1.corrupt: 101% is out of range; legal: 0% to 100%",
    ),
    # Names and interfaces
    (
        TOPOLOGY.replace("h1:p0", "h2:p0"),
        "topology.links[0].endpoints[1]: no node h2; did you mean h0 or h1; legal: h0, h1",
    ),
    (
        with_link("h0->h2: {loss: 1%}"),
        "topology.links[0].h0->h2: no node h2; did you mean h0 or h1; legal: h0, h1;"
        " legal: h0:p0->h1:p0, h1:p0->h0:p0",
    ),
    (
        TOPOLOGY + '    - {endpoints: ["h0:p0", "h1:p1"]}',
        "topology.links[1].endpoints[0]: h0:p0 is used already by topology.links[0];"
        " a port has one link",
    ),
    (
        TOPOLOGY.replace("h1:p0", "h1:averyverylongport"),
        "topology.links[0].endpoints[1]: averyverylongport has 17 characters;"
        " the kernel allows an interface 15",
    ),
    (
        TOPOLOGY.replace("h1:p0", "h1:eth0"),
        "topology.links[0].endpoints[1]: eth0 is no port of a host; legal: p0 to p15",
    ),
    (
        TOPOLOGY.replace("h1:p0", "h0:p1"),
        "topology.links[0].endpoints: both ends are on h0",
    ),
    (
        TOPOLOGY.replace('["h0:p0", "h1:p0"]', '["h0:p0"]'),
        'topology.links[0].endpoints: write two ends, for example ["h0:p0", "h1:p0"]',
    ),
    (
        TOPOLOGY.replace("h1: {}", "h1: {}, Host_2: {}"),
        "topology.nodes.Host_2: Host_2 is not a legal name;"
        " legal: up to 20 of a to z, 0 to 9 and single - inside, the first a letter",
    ),
    (
        TOPOLOGY.replace("h1: {}", "h1: {}, a-name-of-more-than-twenty: {}"),
        "topology.nodes.a-name-of-more-than-twenty: a-name-of-more-than-twenty is not a legal"
        " name; legal: up to 20 of a to z, 0 to 9 and single - inside, the first a letter",
    ),
    (
        "name: Lab 1" + TOPOLOGY,
        "name: Lab 1 is not a legal name; legal: up to 40 of a to z, 0 to 9 and -,"
        " the first not -",
    ),
    # Duplicate keys, trailing nonsense
    (TOPOLOGY + "seed: 1\nseed: 2", "seed: written twice (lines 6 and 7)"),
    (
        TOPOLOGY.replace("h1: {}", "h1: {}, h1: {}"),
        "topology.nodes.h1: written twice (line 3)",
    ),
    (TOPOLOGY + "}", "line 6, column 1: not YAML: expected <block end>, but found '}'"),
    (TOPOLOGY + "--- {}", "line 6: a second document begins; a lab is one"),
    # MTU
    (
        with_item("") + "\ntransports: {rc: {mtu: 4096}}",
        "topology.links[0].mtu: 1500 is too small for transport rc; legal: 4180 or more: "
        + LINK_SUM,
    ),
    (
        with_link("mtu: 9"),
        "topology.links[0].mtu: 9 is out of range;"
        " legal: 1280 to 65535 (IP packet bytes; IPv6 needs 1280)",
    ),
    # Transports: field reports R12, R13
    (
        TOPOLOGY + "transports: {rc: {rnr_timer: 33}}",
        f"transports.rc.rnr_timer: 33 has no unit; {RNR}",
    ),
    (
        TOPOLOGY + "transports: {rc: {retry: 1000}}",
        "transports.rc.retry: 1000 is out of range;"
        " legal: 0 to 7 (resends after a timeout or sequence NAK)",
    ),
    (
        TOPOLOGY + "transports: {rc: {timeout: 32}}",
        "transports.rc.timeout: 32 is out of range; legal: 0 to 31"
        " (4.096us x 2^n: 14 is 67.1ms, 10 is 4.19ms; 0 waits for ever)",
    ),
    (
        TOPOLOGY + "transports: {rc: {mtu: 1000}}",
        "transports.rc.mtu: 1000 is unknown; legal: 256, 512, 1024, 2048, 4096",
    ),
    # Not yet
    (
        TOPOLOGY + "transports: {m: {kind: uc}}",
        "transports.m.kind: uc is not there yet; legal: rc, mrc",
    ),
    # Links that cannot do what they say
    (
        with_link("reorder: 1%"),
        "topology.links[0].reorder: does nothing without delay:"
        " a frame overtakes those that wait",
    ),
    (
        with_link("delay: 1ms, distribution: normal"),
        "topology.links[0].distribution: does nothing without jitter",
    ),
    (
        with_link("loss: {model: gilbert, p: 1%}"),
        "topology.links[0].loss.model: gilbert is unknown; legal: random, gemodel, state",
    ),
    (
        with_link("loss: {model: gemodel}"),
        "topology.links[0].loss.p: missing",
    ),
    (
        with_link("h1->h0: 5"),
        "topology.links[0].h1->h0: 5 is not a mapping; keys: delay, jitter, delay_corr,"
        " distribution, loss, ecn, corrupt, corrupt_corr, duplicate, duplicate_corr, reorder,"
        " reorder_corr, gap, rate, overhead, limit, keep_order, corrupt_from, slot",
    ),
    # Nodes
    (
        BRIDGED.replace("br1: {kind: bridge}", "br1: {kind: bridge, mode: frame}"),
        "topology.nodes.br1.mode: a bridge has none",
    ),
    (
        TOPOLOGY.replace("h1: {}", "h1: {mode: datagram, family: ipv4}"),
        "topology.nodes.h1: datagram mode is IPv6 only; write family: ipv6 or mode: frame",
    ),
    (
        TOPOLOGY.replace("h1: {}", "h1: {mode: datagram}").replace(
            '"h1:p0"]', '"h1:p0"], vlan: 100'
        ),
        "topology.links[0].vlan: h1 is in datagram mode and cannot tag; write mode: frame",
    ),
    (
        BRIDGED + '    - {endpoints: ["br0:e7", "br1:e7"]}',
        "topology.links[3].endpoints: closes a loop of bridges at br0 and br1;"
        " a broadcast would circle for ever",
    ),
    (
        BRIDGED.replace('"h1:p0"]', '"h1:p0"], vlan: 100'),
        "topology.nodes.br1: its links have different vlan values (100, none);"
        " a bridge passes tags on as they are",
    ),
    # Workload
    (
        with_item("").replace("write", "wirte"),
        "workload[0].op: wirte is unknown; did you mean write; legal: send, send_imm,"
        " send_inv, write, write_imm, read, cmp_swap, fetch_add",
    ),
    (
        with_item("").replace("to: h1", "to: h7"),
        "workload[0].to: no node h7; did you mean h0 or h1; legal: h0, h1",
    ),
    (
        with_item("").replace("to: h1", "to: h0"),
        "workload[0].to: h0 cannot send to itself",
    ),
    (
        with_item("").replace("from: h0, ", ""),
        "workload[0].from: missing; or write a pattern",
    ),
    (
        with_item("").replace("size: 1KiB, ", ""),
        "workload[0].size: missing; write for example 64KiB",
    ),
    (
        with_item("").replace("1KiB", "3GiB"),
        "workload[0].size: 3GiB is too large for a message; at most 2GiB",
    ),
    (
        with_item("").replace("1KiB", "1GiB"),
        "workload: its memory regions are 2048 MiB together; at most 1024 MiB",
    ),
    (
        with_item("pattern: ring"),
        "workload[0].from: ring has its own; leave it out",
    ),
    (
        with_item("over: [h0, h1]"),
        "workload[0].over: is for patterns; from and to say it already",
    ),
    (
        with_item("pattern: ring, over: [h0, h1, h0]").replace("from: h0, to: h1, ", ""),
        "workload[0].over[2]: h0 is there twice",
    ),
    (
        with_item("pattern: ring, over: [h0, h7]").replace("from: h0, to: h1, ", ""),
        "workload[0].over[1]: no node h7; did you mean h0 or h1; legal: h0, h1",
    ),
    (
        with_item("pattern: all_reduce")
        .replace("from: h0, to: h1, ", "")
        .replace("op: write", "op: read"),
        "workload[0].op: read brings nothing to the next host; legal: write, write_imm, send,"
        " send_imm",
    ),
    (
        with_item("after: 0"),
        "workload[0].after: 0 is not an item above this one; the first item has none above it",
    ),
    (
        with_item("imm: 1"),
        "workload[0].imm: write has no use for it; only send_imm, write_imm",
    ),
    (
        with_item("transport: rd"),
        "workload[0].transport: no transport rd; did you mean rc; legal: rc",
    ),
    (
        with_item("") + "\ntransports: {a: {}, b: {}}",
        "workload[0].transport: missing; legal: a, b",
    ),
    (
        with_item("access: [write]"),
        "workload[0].access: write is unknown;"
        " legal: local_write, remote_write, remote_read, remote_atomic",
    ),
    (
        TOPOLOGY + "workload: [{op: fetch_add, from: h0, to: h1, size: 4B}]",
        "workload[0].size: an atomic has 8B; leave it out",
    ),
    (
        TOPOLOGY + "workload: [{op: cmp_swap, from: h0, to: h1, compare: 0}]",
        "workload[0].swap: missing; what the word becomes",
    ),
    (
        with_item("").replace("h1: {}", "h1: {family: ipv4}"),
        "workload[0].to: h0 (GID fd00::1) is ipv6 and h1 (GID ::ffff:198.18.0.2) is ipv4;"
        " give both one family",
    ),
    (
        TOPOLOGY.replace("h1: {}", "h1: {}, h2: {}")
        + "workload: [{op: write, from: h0, to: h2, size: 1KiB}]",
        "workload[0].to: no way from h0 to h2",
    ),
    # Faults, expectations, capture
    (
        TOPOLOGY + "faults: [{do: drop, on: h0}]",
        "faults[0].on: h0 is not a port; write for example h0:p0",
    ),
    (
        TOPOLOGY + "faults: [{do: drop, on: h0--h1}]",
        "faults[0].on: h0--h1 has two directions; write one: h0->h1",
    ),
    (
        TOPOLOGY + "faults: [{do: delay, on: 'h0:p0'}]",
        "faults[0].delay: missing; how long to delay, for example 1ms",
    ),
    (
        TOPOLOGY + "faults: [{do: drop, on: 'h0:p0', where: {psn: -1}}]",
        "faults[0].where.psn: -1 is no PSN; legal: 0 to 16777215, or +7 for the eighth of"
        " the QP",
    ),
    (
        TOPOLOGY + "faults: [{do: drop, on: 'h0:p0', where: {flow: 0}}]",
        "faults[0].where.flow: no flow 0",
    ),
    (
        with_item("") + "\nfaults: [{do: drop, on: 'h0:p0', where: {flow: 0/h1->h0/0}}]",
        "faults[0].where.flow: no flow 0/h1->h0/0; did you mean 0/h0->h1/0;"
        " legal: 0, 0/h0->h1, 0/h0->h1/0",
    ),
    (
        "limit: 0s" + TOPOLOGY,
        "limit: 0s ends the run before it begins; write for example 60s",
    ),
    (
        TOPOLOGY + "faults: [{on: 'h0:p0'}]",
        "faults[0]: a fault is {do: drop, on: h0:p0, ...}"
        " or {at: 1ms, on: h0->h1, set: {loss: 20%}}",
    ),
    (
        TOPOLOGY + "faults: [{at: 1ms, on: h0->h1, set: {reorder: 5%}}]",
        "faults[0].set.reorder: does nothing without delay: a frame overtakes those that wait",
    ),
    (
        TOPOLOGY + "expect: [all_completed]",
        "expect[0]: all_completed is unknown; did you mean all_complete; legal: all_complete,"
        " statuses, no_corruption, no_retransmissions, or {metric: ...}",
    ),
    (
        TOPOLOGY + "expect: [{metric: naks}]",
        "expect[0]: no bound; legal: equals, above, below, at_least, at_most",
    ),
    (
        TOPOLOGY + "expect: [{metric: paused, above: 5}]",
        "expect[0].above: 5 has no unit; write 5ms (ns, us, ms, s)",
    ),
    (
        TOPOLOGY + "expect: [{metric: deepest_queue, above: 5}]",
        "expect[0].above: 5 has no unit; write 5B (B, KiB, MiB, GiB)",
    ),
    (
        with_item("") + "\nexpect: [{metric: marked, flow: 0, above: 5}]",
        "expect[0].flow: marked is of no flow; legal with: completed, packets,"
        " retransmissions, timeouts, naks, rnr_naks, corrupt_messages, cnps, rate_cuts,"
        " fairness, goodput, duration",
    ),
    (
        with_item("") + "\nexpect: [{metric: naks, flow: 1, above: 5}]",
        "expect[0].flow: no flow 1; did you mean 0; legal: 0, 0/h0->h1, 0/h0->h1/0",
    ),
    (
        TOPOLOGY + "expect: [{metric: goodput, above: 5}]",
        "expect[0].above: 5 has no unit; write 5gbit (bit, kbit, mbit, gbit, tbit)",
    ),
    (
        TOPOLOGY + "capture: {links: [h0--h7]}",
        "capture.links[0]: no node h7; did you mean h0 or h1; legal: h0, h1",
    ),
    # Not a lab at all
    ("", "the lab is empty; it needs at least fabric: {...} or topology: {nodes: {...}}"),
    ("- 1", "the lab is a list; it must be a mapping of keys"),
    ("topology: {nodes: {}}", "topology.nodes: empty; write at least one node"),
    ("topology: 5", "topology: 5 is not a mapping; keys: nodes, links"),
    ("name: x", "topology: missing; or write fabric: {kind: clos, ...}"),
]


@pytest.mark.parametrize(("text", "line"), REFUSED, ids=[line[:60] for _, line in REFUSED])
def test_a_bad_lab_is_refused_by_one_line_with_the_path_and_what_is_legal(text, line):
    assert problems(text) == [line]


def test_an_unknown_op_of_a_fault_is_refused_with_the_names_of_opcodes():
    text = TOPOLOGY + "faults: [{do: drop, on: 'h0:p0', where: {op: WRITE_MIDLE}}]"
    (line,) = problems(text)
    assert line.startswith(
        "faults[0].where.op: WRITE_MIDLE is unknown; did you mean WRITE_MIDDLE; legal: SEND,"
    )


def test_every_problem_is_told_at_once():
    text = (
        with_link("delay: 5, loss: 101%, foo: 1").replace("h0: {}", "h0: {mode: fast}")
        + "transports: {rc: {retry: 9}}\nexpect: [nothing]\nfaults: [{do: drop, on: h9}]"
    )
    assert [line.partition(": ")[0] for line in problems(text)] == [
        "topology.nodes.h0.mode",
        "topology.links[0].foo",
        "topology.links[0].delay",
        "topology.links[0].loss",
        "transports.rc.retry",
        "expect[0]",
        "faults[0].on",
    ]


def test_so_many_problems_are_not_all_told():
    text = "\n".join(f"key{i}: 1" for i in range(200)) + TOPOLOGY
    told = problems(text)
    assert len(told) == MAX_PROBLEMS + 1
    assert told[-1] == "and 150 more problems"


def test_what_a_lab_does_not_say_has_defaults():
    lab = load_lab(TOPOLOGY, name_hint="My Lab!")
    assert (lab.name, lab.seed, lab.dilation, lab.limit) == ("my-lab", 1, None, 60_000_000_000)
    rc = lab.transports["rc"]
    assert (rc.mtu, rc.timeout, rc.retry, rc.rnr_retry, rc.rnr_timer) == (1024, 14, 7, 7, 12)
    assert lab.capture.links == "all"


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("0%", RandomLoss(0.0)),
        ("100%", RandomLoss(1.0)),
        ("{model: random, p: 1%, correlation: 25%}", RandomLoss(0.01, 0.25)),
        ("{model: gemodel, p: 1%}", GilbertElliott(0.01, 0.99, 1.0, 0.0)),
        (
            "{model: gemodel, p: 1%, r: 30%, 1-h: 70%, 1-k: 1%}",
            GilbertElliott(0.01, 0.3, 0.7, 0.01),
        ),
        ("{model: state, p13: 10%}", FourState(0.1, 0.9, 0.0, 1.0, 0.0)),
    ],
)  # fmt: skip
def test_loss_models_have_the_defaults_of_tc(text, loss):
    assert load_lab(with_link(f"loss: {text}")).topology.links[0].loss == loss


def test_an_override_is_laid_over_the_text_before_it_is_judged():
    lab = load_lab(
        TOPOLOGY,
        overrides={
            "defaults.host.mode": "datagram",
            "topology.links[0].delay": "5ms",
            "seed": "9",
            "expect": "[all_complete]",
            "capture": {"links": ["h0--h1"]},
        },
    )
    assert lab.defaults.host.mode == "datagram"
    assert lab.topology.links[0].delay == 5_000_000
    assert lab.seed == 9
    assert lab.expect[0][0].name == "all_complete"
    assert lab.capture.links == ("h0--h1",)


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            "topology.links[0].delay", "5",
            "topology.links[0].delay: 5 has no unit; write 5ms (ns, us, ms, s)",
        ),
        (
            "topology.links[7].delay", "5ms",
            "topology.links[7].delay: the lab has nothing at [7]",
        ),
        ("name.x", "1", "name.x: the lab has nothing at x"),
        (
            "a..b", "1",
            "a..b: not a key; write for example defaults.host.mode or topology.links[0].delay",
        ),
        (
            "[0]", "1",
            "[0]: not a key; write for example defaults.host.mode or topology.links[0].delay",
        ),
        (
            "seed", "[",
            "seed: line 1, column 2: not YAML: expected the node content,"
            " but found '<stream end>'",
        ),
        (
            "dilation", "0",
            "dilation: 0 is out of range; legal: 1 to 1000000, or auto",
        ),
    ],
)  # fmt: skip
def test_a_bad_override_is_refused_as_the_text_would_be(path, value, line):
    assert problems("name: x" + TOPOLOGY, **{path: value}) == [line]
