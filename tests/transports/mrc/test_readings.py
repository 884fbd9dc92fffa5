"""Each disputed point in both readings, end to end; two ends that differ are told in words.

Points that a talk need not come to have a set-up of their own in which it does.
"""

from dataclasses import replace

import pytest

from tests.transports.mrc.script import MTU, OUR_PSN, Dialogue, ack, sack
from tests.transports.mrc.world import SUCCESS, Trouble, World
from transports.clock import MS, US
from transports.mrc.config import AckMsn, OorPolicy, QpConfig
from transports.mrc.events import EvProbed, Mismatch, PeerPorts, Retransmitted
from transports.mrc.paths import EvState, LossRule, PathEvent, PathsConfig
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.mrc.options import BthBitOrder, EvSplit, WireOptions
from wire.mrc.packet import MrcPacket
from wire.mrc.reliability import NackReason, PathVerdict

READINGS = [
    WireOptions(udp_dport=4971),
    WireOptions(bth_bit_order=BthBitOrder.SE_M),
    WireOptions(ev_split=EvSplit.LABEL_LOW),
    WireOptions(eeth_op_shift=4),
    WireOptions(icrc=False),
    WireOptions(port_mask_base=1),
]


def names(value):
    """Which fields of options or a configuration are not the default."""
    fields = value._fields if isinstance(value, WireOptions) else value.__slots__
    default = type(value)()
    return " ".join(f for f in fields if getattr(value, f) != getattr(default, f)) or "default"


def talk(world):
    """WRITEs with and without immediates, a port that flaps, an EV probe."""
    world.fill()
    world.receives(8)
    for n in range(8):
        imm = n if n % 2 else None
        world.write(n, n * 20_000, 20_000, imm=imm, solicited=True)
    world.at(world.now + 5 * US, lambda: world.set_port(1, 1, up=False))
    world.at(world.now + 60 * US, lambda: world.set_port(1, 1, up=True))
    world.run(world.now + 40 * MS)
    one = world.ends[0]
    one.device.probe_ev(one.qp, one.qp.paths.active[0], world.now)
    world.run(world.now + 3 * MS)


CONFIGS = [
    QpConfig(),
    QpConfig(ack_msn=AckMsn.LAST),
    QpConfig(timestamps=False),
    QpConfig(service_time=True),
    QpConfig(trimming=False, trim_nack=False),
]


@pytest.mark.parametrize(
    ("options", "config"),
    [*((WireOptions(), config) for config in CONFIGS), *((o, QpConfig()) for o in READINGS)],
    ids=names,
)
def test_both_readings_run_end_to_end(options, config):
    world = World(
        2, Trouble(loss=0.02, trim=0.02, mark=0.1), options=[options, options], config=config
    )
    talk(world)
    one, two = world.ends
    assert one.done() == [(n, SUCCESS) for n in range(8)]
    assert two.region.view[:160_000] == one.source.view[:160_000]
    assert [(c.imm_data, c.solicited) for c in two.completions] == [
        (n, True) for n in (1, 3, 5, 7)
    ]
    assert {told.mask for told in one.told(PeerPorts)} == {0b01, 0b11}
    assert one.told(EvProbed)[-1].rtt is not None
    assert not one.told(Mismatch) + two.told(Mismatch)


def said(world, host, opcode):
    """What an end said with an opcode, taken apart."""
    sent = [out for _, out in world.ends[host].sent if out.opcode is opcode]
    return [MrcPacket.unpack(out.packet[48:-4]) for out in sent]


def arrives_whole(world, size):
    """WRITE so many bytes in one message, and see that they are there."""
    one, two = world.ends
    world.fill()
    world.write(1, 0, size)
    world.run_until_done(1)
    assert one.done() == [(1, SUCCESS)]
    assert two.region.view[:size] == one.source.view[:size]


@pytest.mark.parametrize("policy", OorPolicy)
def test_what_comes_from_beyond_the_window_in_both_readings(policy):
    """3.14: `oor_policy`. The requestor takes the window for twice what it is."""
    world = World(2, mtu=256, mpr=1, config=QpConfig(oor_policy=policy), keep_sent=True)
    world.ends[0].qp.requestor.window.mpr = 2
    world.links[0].drop_next.append(lambda out: out.opcode in WRITES)
    arrives_whole(world, 200 * 256)
    reasons = [nack.neth.reason for nack in said(world, 1, MrcOpcode.NACK)]
    dropped = world.ends[1].device.counters().get("refused_out_of_window", 0)
    if policy is OorPolicy.NACK:
        assert set(reasons) == {NackReason.PSN_OOR_WINDOW}
        assert dropped == 0
    else:
        assert not reasons
        assert dropped > 0


@pytest.mark.parametrize("run", [None, 3])
def test_a_path_that_always_marks_in_both_readings(run):
    """12.8: `always_skip_run`. Every packet of one EV is marked, and of no other."""
    world = World(2, config=QpConfig(always_skip_run=run), keep_sent=True)
    bad = world.ends[0].qp.paths.active[1]
    world.links[0].marked_evs.add(bad)
    arrives_whole(world, 400 * MTU)
    verdicts = {sack.seth.verdict for sack in said(world, 1, MrcOpcode.SACK)}
    retired = {
        event.ev for event in world.ends[0].told(PathEvent) if event.new is EvState.ASSUMED_BAD
    }
    assert PathVerdict.SKIP_ONCE in verdicts
    assert (PathVerdict.ALWAYS_SKIP in verdicts) is (run is not None)
    assert retired == ({bad} if run else set())


@pytest.mark.parametrize(
    ("off", "rules"),
    [
        (set(), {LossRule.L2}),
        ({LossRule.L2}, {LossRule.L3}),
        ({LossRule.L2, LossRule.L3}, {LossRule.L5}),
    ],
)
def test_a_loss_with_each_of_the_loss_rules(off, rules):
    """12.8: `loss_rules`. One packet is lost: the first rule that is left finds it."""
    config = QpConfig(loss_rules=frozenset(LossRule) - off)
    world = World(2, Trouble(skew=0), mtu=256, config=config)
    world.links[0].drop_next.append(lambda out: out.opcode is MrcOpcode.WRITE_MIDDLE)
    arrives_whole(world, 800 * 256)
    assert {event.rule for event in world.ends[0].told(Retransmitted)} == rules


@pytest.mark.parametrize(("is_good", "state"), [(False, EvState.SKIP), (True, EvState.GOOD)])
def test_a_path_found_good_by_marked_probes_in_both_readings(is_good, state):
    """3.14: `probe_skip_result`. A path without spares dies, comes back, and marks."""
    world = World(2, keep_sent=True)
    one = world.ends[0]
    paths, [link, _] = one.qp.paths, world.links
    paths.config = replace(paths.config, probe_skip_is_good=is_good)
    bad = paths.active[1]
    for ev in [ev for ev, now in paths.states() if now is EvState.SPARE]:
        paths.deny(ev)
    link.dead_evs.add(bad)
    arrives_whole(world, 400 * MTU)
    assert paths.state_of(bad) is EvState.ASSUMED_BAD
    link.dead_evs.discard(bad)
    link.marked_evs.add(bad)
    world.run(world.now + 20 * MS, settled=lambda: paths.state_of(bad) is state)
    back = [event for event in one.told(PathEvent) if event.ev == bad][-1]
    assert (back.old, back.new) == (EvState.ASSUMED_BAD, state)
    assert "probes in a row answered" in back.cause
    answers = [sack for sack in said(world, 1, MrcOpcode.SACK) if sack.seth.entropy == bad]
    assert {answer.seth.verdict for answer in answers[-3:]} == {PathVerdict.SKIP_ONCE}


@pytest.mark.parametrize("options", READINGS[1:], ids=names)
def test_ends_that_differ_are_told_in_words(options):
    """Not by a hang: whichever end sees the sign names the option and what to do."""
    for pair in ([options, WireOptions()], [WireOptions(), options]):
        world = World(3, options=pair, exponential=1)
        talk(world)
        told = [event for end in world.ends for event in end.told(Mismatch)]
        points = {event.point for event in told}
        assert points == {f"WireOptions.{names(options)}"}, (names(options), told)
        assert all("give both ends the same" in event.detail for event in told)
        assert len(told) == len(set(told)), "once"


def test_ends_that_differ_in_the_port_talk_all_the_same():
    """12.1: receivers accept both and answer on the one seen."""
    world = World(3, options=[READINGS[0], WireOptions()])
    talk(world)
    assert world.ends[0].done() == [(n, SUCCESS) for n in range(8)]


@pytest.mark.parametrize("pair", [(AckMsn.LAST, AckMsn.COUNT), (AckMsn.COUNT, AckMsn.LAST)])
def test_ends_that_count_messages_differently_are_told(pair):
    world = World(3, config=[QpConfig(ack_msn=reading) for reading in pair], exponential=1)
    world.write(1, 0, 100)
    world.run(world.now + 100 * MS)
    [told] = world.ends[0].told(Mismatch)
    assert told.point == "QpConfig.ack_msn"
    assert told.qp_num == 0x20


@pytest.mark.parametrize("pair", [(AckMsn.LAST, AckMsn.COUNT), (AckMsn.COUNT, AckMsn.LAST)])
@pytest.mark.parametrize("lost", [OUR_PSN, OUR_PSN + 1])
def test_a_count_that_is_read_otherwise_completes_nothing_whose_data_is_missing(pair, lost):
    """12.12: BTH.PSN is the last PSN of the last message counted; one that is not tells."""
    world = World(3, config=[QpConfig(ack_msn=reading) for reading in pair], exponential=1)
    world.fill()
    one, two = world.ends
    world.links[0].drop_next.append(lambda out: out.opcode in WRITES and out.psn == lost)
    world.write(1, 0, 100)
    world.write(2, 5000, 100)

    def check():
        for event in one.completions:
            start = {1: 0, 2: 5000}[event.wr_id]
            there = slice(start, start + 100)
            same = two.region.view[there] == one.source.view[there]
            assert same or event.status is not SUCCESS
        return len(one.completions) == 2

    world.run(settled=check)
    [told] = one.told(Mismatch)
    assert told.point == "QpConfig.ack_msn"


@pytest.mark.parametrize(("reading", "less"), [(AckMsn.COUNT, 0), (AckMsn.LAST, 1)])
def test_a_transport_ack_whose_psn_does_not_end_what_it_counts(reading, less):
    """12.12, as above: refused; told in words only where the other reading explains it."""
    mrc = Dialogue(config=QpConfig(ack_msn=reading))
    for wr_id in (1, 2, 3):
        mrc.posts(wr_id=wr_id)
    ends = [sent.psn for sent in mrc.sends_all()]
    mrc.ignores(ack(2 - less, ends[1] + 100), "refused_ack_psn")
    assert not mrc.told(Mismatch)
    mrc.receives(ack(2 - less, ends[0] if less else ends[2]))
    assert [told.point for told in mrc.told(Mismatch)] == ["QpConfig.ack_msn"]
    mrc.completes()
    mrc.receives(ack(2 - less, ends[1]))
    mrc.receives(ack(2 - less, ends[1]))
    mrc.completes((1, "SUCCESS"), (2, "SUCCESS"))


def test_a_transport_ack_in_both_readings():
    """12.12: k + 1, or k."""
    for reading, msn in ((AckMsn.COUNT, 1), (AckMsn.LAST, 0)):
        mrc = Dialogue(config=QpConfig(ack_msn=reading))
        mrc.posts()
        sent = mrc.sends()
        mrc.receives(ack(msn, sent.psn))
        mrc.completes((1, "SUCCESS"))


@pytest.mark.parametrize(("is_good", "state"), [(False, EvState.SKIP), (True, EvState.GOOD)])
def test_a_marked_answer_to_a_path_probe_in_both_readings(is_good, state):
    """3.14: `probe_skip_result`."""
    mrc = Dialogue(timeout=10)
    mrc.qp.paths.config = PathsConfig(mrc.qp.paths.config.active, probe_skip_is_good=is_good)
    mrc.posts()
    sent = mrc.sends()
    rtt = 12 * US
    mrc.receives(sack(7, psn=7, tx=sent.tx_timestamp, ev=sent.ev, verdict=2), at=mrc.now + rtt)
    mrc.receives(ack(1, 7))
    for _ in range(3):
        mrc.waits(mrc.device.deadline)
        probe = mrc.sends("PROBE", ev=sent.ev)
        answer = sack(7, probe=probe.probe_id, ev=probe.ev, verdict=1)
        mrc.receives(answer, at=mrc.now + rtt)
    assert mrc.qp.paths.state_of(sent.ev) is state


def test_mtu_is_the_peers_too():
    """A path MTU that differs is named by the responder's NAK."""
    world = World(1)
    world.ends[1].qp.responder.messages._mtu = MTU // 2
    world.fill()
    world.write(1, 0, 3 * MTU)
    world.run(world.now + 10 * MS)
    assert world.ends[0].completions[0].status.name == "REM_INV_REQ_ERR"
    assert "the path MTU is 512" in world.ends[1].events[-1].detail
