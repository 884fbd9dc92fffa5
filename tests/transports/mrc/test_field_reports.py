"""Field reports, section 4: what went wrong elsewhere with many paths and selective repair."""

from collections import Counter

from tests.transports.mrc.script import OUR_PSN, PEER_QP, Dialogue, nack, sack, write
from tests.transports.mrc.world import SUCCESS, R, Trouble, World, ev_of
from transports.clock import MS, S
from transports.mrc.events import Retransmitted
from transports.mrc.paths import LossRule
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.mrc.reliability import NackReason

MTU = 1024
FAST = 800_000_000_000  # 1.8 MB may be in flight


def copied(world, length):
    """One WRITE of `length` bytes from end to end."""
    world.fill()
    world.write(1, 0, length)
    world.run_until_done(1)
    one, two = world.ends
    assert one.done() == [(1, SUCCESS)]
    assert two.region.view[:length] == one.source.view[:length]
    return one.qp.requestor, two.qp.responder


def first_time(psns):
    return [lambda out, psn=psn: out.opcode in WRITES and out.psn == psn for psn in psns]


def writes(end):
    return [out for _, out in end.sent if out.opcode in WRITES]


def test_m03_the_cumulative_ack_never_runs_back_and_nothing_is_left():
    """Plane 1 is late by five packets; 1,000 packets."""
    world = World(1, Trouble(skew=500), planes=2, rate=100_000_000_000)
    cacks = []
    world.checks.append(
        lambda world, end, out: cacks.append(out.psn) if out.opcode is MrcOpcode.SACK else None
    )
    requestor, responder = copied(world, 1000 * MTU)
    world.run(world.now + MS)
    assert cacks == sorted(cacks)
    assert responder.bitmap.reorder_depth >= 5
    assert (responder.bitmap.ooo_count, len(responder.messages)) == (0, 0)
    assert (len(requestor.board), requestor.board.inflight, len(requestor.messages)) == (
        0,
        0,
        0,
    )


def test_m04_each_packet_takes_another_path_and_no_port_is_zero():
    """Four kinds of paths, 200 packets each: a histogram of EVs."""
    for planes, per_plane in ((1, 16), (2, 8), (4, 4), (8, 16)):
        world = World(1, planes=planes, per_plane=per_plane, keep_sent=True)
        copied(world, 200 * MTU)
        used = Counter(ev_of(out.packet) for out in writes(world.ends[0]))
        assert sum(used.values()) == 200
        assert len(used) == planes * per_plane
        assert max(used.values()) <= 2 * -(-200 // len(used))
        assert all(ev & 0xFFFF for ev in used)


def test_m05_nobody_is_queue_pair_0_and_unknown_ones_are_met_with_silence():
    mrc = Dialogue()
    stray = write(1000)._replace(bth=write(1000).bth._replace(dest_qp=PEER_QP))
    mrc.ignores(stray, "refused_dest_qp")
    stray = nack(OUR_PSN, NackReason.TRIMMED)
    mrc.ignores(stray._replace(bth=stray.bth._replace(dest_qp=0)), "refused_dest_qp")


def test_m07_a_burst_of_losses_is_reported_hole_by_hole():
    """PSN 10 to 400 of the first 500 are lost: repaired in round trips, without a timeout."""
    world = World(1, psns=(0, 0), planes=4, rate=FAST, timeout=10)
    world.links[0].drop_next += first_time(range(10, 401))
    requestor, _ = copied(world, 500 * MTU)
    assert requestor.losses[LossRule.L4] == 0
    assert requestor.retransmissions == 391, "each once"
    assert world.now < 40 * R


def test_m08_what_arrived_is_rarely_sent_again():
    """30 % of the answers and 5 % of the data are lost."""
    trouble = Trouble(loss=0.05, control_loss=0.3, skew=100)
    world = World(8, trouble, planes=4, per_plane=16, rate=FAST, timeout=10)
    requestor, _ = copied(world, 1000 * MTU)
    needless = world.ends[1].device.counters().get("duplicate", 0)
    assert requestor.retransmissions > 30
    assert needless <= 0.02 * 1000


def test_m09_two_seconds_of_queue_do_not_double_the_bytes():
    """The timer has no bound below a real round trip: code 22 is 4.3 s."""
    world = World(1, Trouble(delay=S), rate=FAST, timeout=22, base_rtt=2 * S, keep_sent=True)
    copied(world, 500 * MTU)
    assert world.ends[0].qp.stats.payload_bytes <= 1.3 * 500 * MTU


def test_m10_a_loss_is_repaired_once_however_often_it_is_reported():
    """PSN 86 is lost once, each answer comes twice."""
    world = World(1, psns=(0, 0), keep_sent=True)
    world.links[0].drop_next += first_time([86])
    world.links[1].trouble = Trouble(duplicate=1.0)
    copied(world, 200 * MTU)
    world.run(world.now + MS)
    assert [out.transmission for out in writes(world.ends[0]) if out.psn == 86] == [1, 2]
    assert len(writes(world.ends[0])) == 201


def test_m11_paths_of_different_length_are_no_loss():
    """1 ms and 6 ms: nothing is sent again, and how deep the reordering was can be read."""
    world = World(1, Trouble(delay=MS, skew=0), rate=FAST, timeout=14, base_rtt=12 * MS)
    link = world.links[0]
    send = link.send

    def slow(out, now):
        send(out, now + 5 * MS if out.plane else now)

    link.send = slow
    requestor, responder = copied(world, 500 * MTU)
    assert requestor.retransmissions == 0
    assert not world.ends[0].told(Retransmitted)
    assert not requestor.losses
    assert responder.bitmap.reorder_depth > 100


def test_a_repaired_packet_is_not_repaired_again_by_an_older_sack():
    """M10, from the other side: the SACK was under way when the packet was sent again."""
    mrc = Dialogue()
    mrc.posts(20 * MTU)
    sent = mrc.sends_all()
    trim = nack(sent[0].psn, NackReason.TRIMMED, ev=sent[0].ev, tx=sent[0].tx_timestamp)
    mrc.receives(trim, at=mrc.now + R)
    again = mrc.sends("WRITE_FIRST", rtx=True)
    others = [one for one in sent[1:] if one.ev != again.ev]
    mrc.receives(sack(sent[0].psn - 1, *(one.psn for one in others)))
    assert sent[0].psn not in {one.psn for one in mrc.sends_all()}
