"""Host to host: ports and EV probes. OCP MRC 1.0, 7.5.6 (as cited); mrc-emu/1, 12.11."""

import pytest

from tests.transports.mrc.script import (
    ACTIVE,
    EV,
    MTU,
    OUR_PSN,
    Dialogue,
    probe,
    said,
    us,
    write,
)
from tests.transports.mrc.world import R, World, evs, ip
from transports.clock import MS, US
from transports.mrc.attributes import Peer, QpState, StateError
from transports.mrc.device import DeviceConfig
from transports.mrc.events import EvProbed, PeerPorts
from transports.mrc.nscc import NsccConfig
from transports.mrc.paths import EvState, LossRule, PathsConfig
from transports.mrc.window import Stop
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.opcodes import ENDPOINT_QP, WRITES, MrcOpcode

PSN = OUR_PSN


def status(mask):
    erth = Erth(EndpointOp.PORT_STATUS_UPDATE, mask)
    return said(MrcOpcode.ENDPOINT_REQUEST, erth, psn=1, dest_qp=ENDPOINT_QP)


def planes_used(sent):
    return {one.out.plane for one in sent if one.out.opcode in WRITES}


def test_a_change_of_a_port_is_told_three_times_on_planes_that_live():
    """12.11: one R apart, each on another live plane; the mask holds the sender's ports."""
    mrc = Dialogue(planes=3, active=[0x2A8, 0x2A9, 0x2AA])
    mrc.device.set_port(2, mrc.now, up=False)
    start, told = mrc.now, []
    for n in range(3):
        mrc.waits(start + n * R)
        mrc._drain()
        [sent] = mrc.sends_all("ENDPOINT_REQUEST")
        told.append(sent)
    assert {sent.port_status_mask for sent in told} == {0b011}
    assert {sent.out.plane for sent in told} == {0, 1}
    assert {sent.dscp for sent in told} == {46}
    assert {sent.op for sent in told} == {EndpointOp.PORT_STATUS_UPDATE}
    mrc.sends_nothing(until=start + 100 * R)


def test_each_repeat_of_a_change_takes_another_ev():
    """12.11, 12.9: a plane has many paths, and nobody answers: one may be broken unknown."""
    mrc = Dialogue()
    mrc.qp.paths.on_always_skip(ACTIVE[1])
    mrc.qp.paths.deny(ACTIVE[3])
    mrc.device.set_port(0, mrc.now, up=False)
    start, told = mrc.now, []
    for n in range(3):
        mrc.waits(start + n * R)
        mrc._drain()
        [sent] = mrc.sends_all("ENDPOINT_REQUEST")
        told.append(sent.ev)
    assert set(told) == {ACTIVE[5], ACTIVE[7]}, "good ones of plane 1"
    assert told[0] != told[1] != told[2]
    newest = EV + 1 + (9 << 22)
    mrc.receives(write(1000, tx=1), ev=newest)
    mrc.device.set_port(0, mrc.now, up=True)
    mrc.device.set_port(0, mrc.now, up=False)
    for _ in range(3):
        mrc.waits(mrc.now + R)
        mrc._drain()
    told = [s.ev for s in mrc.sends_all() if s.out.opcode is MrcOpcode.ENDPOINT_REQUEST]
    assert newest in told, "or the one on which data came last"


def test_port_status_reaches_a_peer_although_a_path_is_broken():
    """8, 12.9: a broken path is none of the plane; what it swallows comes on another."""
    for broken in range(8):
        world = World(3, planes=2, per_plane=4, port_status_interval=5 * MS)
        world.run(world.now + 100 * US)
        two = world.ends[1]
        world.links[0].dead_evs.add(evs(1, 8)[broken])
        world.set_port(0, 1, up=False)
        world.run(world.now + 5 * R)
        assert two.qp.paths.live_planes == 0b01, broken
        world.set_port(0, 1, up=True)
        world.run(world.now + 5 * R)
        assert two.qp.paths.live_planes == 0b11, broken


def test_queue_pairs_that_know_a_host_by_other_planes_each_learn_of_its_ports():
    """12.11: one host; and what one queue pair knew of it goes with that one alone."""
    world = World(3, planes=2)
    two = world.ends[1]
    other = two.device.create_qp(two.qp.pd, qp_num=0x99)
    control = NsccConfig(100_000_000_000, R, MTU + 64)
    other.modify(QpState.INIT, 0, ev_profile=PathsConfig(evs(1, 4)), cc_profile=control)
    other.modify(
        QpState.RTR, 0, peer=Peer((ip(0, 0), None), 0x77, 5), path_mtu=MTU, max_wimm_dest=4,
        mpr_dest=8,
    )  # fmt: skip
    for up, live in ((False, 0b10), (True, 0b11)):
        world.set_port(0, 0, up=up)
        world.run(world.now + MS)
        assert two.qp.paths.live_planes == live
        assert other.paths.live_planes == live & 0b01
    world.set_port(0, 1, up=False)
    world.run(world.now + MS)
    assert (two.qp.paths.live_planes, other.paths.live_planes) == (0b01, 0b01)
    two.device.destroy_qp(other)
    world.set_port(0, 1, up=True)
    world.run(world.now + MS)
    assert two.qp.paths.live_planes == 0b11
    assert "refused_endpoint_peer" not in two.device.counters()
    two.device.destroy_qp(two.qp)
    world.set_port(0, 1, up=False)
    world.run(world.now + MS)
    assert two.device.counters()["refused_endpoint_peer"]


def test_an_interval_that_is_none_is_refused():
    """12.11: a device that repeated itself without a pause would never be done sending."""
    for interval in (0, -1):
        with pytest.raises(ValueError, match="legal is above 0, or None: only changes"):
            DeviceConfig((ip(0, 0),), port_status_interval=interval)


def test_all_states_are_told_every_5_ms():
    """12.11."""
    mrc = Dialogue(port_status_interval=5 * MS)
    start = mrc.now
    mrc.sends_nothing(until=start + 5 * MS - 1)
    mrc.waits(start + 5 * MS)
    mrc._drain()
    mrc.sends("ENDPOINT_REQUEST", port_status_mask=3)


def test_a_plane_that_is_down_at_home_carries_nothing():
    """8: all EVs of that plane are unusable at once; 12.17.6."""
    mrc = Dialogue()
    mrc.device.set_port(0, mrc.now, up=False)
    mrc.posts(20 * MTU)
    sent = mrc.sends_all()
    assert planes_used(sent) == {1}
    mrc.device.set_port(0, mrc.now, up=True)
    mrc.posts(60 * MTU)
    assert planes_used(mrc.sends_all()) == {0, 1}
    with pytest.raises(ValueError, match="plane 2 is none of this device"):
        mrc.device.set_port(2, mrc.now, up=True)


def test_a_plane_that_is_down_at_the_peer_carries_nothing():
    """8: the peer learns it; the newest message by arrival counts."""
    mrc = Dialogue()
    mrc.receives(status(0b01))
    mrc.posts(20 * MTU)
    assert planes_used(mrc.sends_all()) == {0}
    assert mrc.told(PeerPorts) == [PeerPorts(mrc.theirs, 0b11, 0b01, mrc.now)]
    mrc.receives(status(0b01))
    assert len(mrc.told(PeerPorts)) == 1, "only changes"
    mrc.receives(status(0b11))
    mrc.posts(60 * MTU)
    assert planes_used(mrc.sends_all()) == {0, 1}


def test_without_any_plane_it_stalls_and_goes_on_when_one_is_back():
    """12.9: none: stall, timers keep running."""
    mrc = Dialogue()
    for plane in (0, 1):
        mrc.device.set_port(plane, mrc.now, up=False)
    mrc.sends_all()
    mrc.posts()
    mrc.sends_nothing()
    assert mrc.qp.requestor.stop is Stop.PATHS
    mrc.receives(probe(1))
    mrc.sends_nothing()
    mrc.device.set_port(1, mrc.now, up=True)
    mrc._drain()
    assert planes_used(mrc.sends_all()) == {1}


def test_an_ev_that_is_allowed_again_wakes_who_waits_for_one():
    """12.9: with every EV denied it stalls, and no timer of its own would ever end that."""
    mrc = Dialogue()
    for ev in ACTIVE:
        mrc.qp.deny(ev)
    mrc.posts()
    mrc.sends_nothing(until=mrc.now + 100 * R)
    assert mrc.qp.requestor.stop is Stop.PATHS
    mrc.qp.allow(ACTIVE[3])
    mrc._drain()
    mrc.sends("WRITE_ONLY", ev=ACTIVE[3])
    with pytest.raises(StateError, match="allow in RESET: modify to INIT gives it EVs"):
        Dialogue(state=QpState.RESET).qp.allow(ACTIVE[3])


@pytest.mark.parametrize("here", [True, False])
def test_what_a_port_lost_costs_no_ev(here):
    """12.9: what was under way is lost with the port, at either end; its paths are healthy."""
    mrc = Dialogue()

    def goes(mask):
        if here:
            mrc.device.set_port(0, mrc.now, up=bool(mask & 1))
            mrc._drain()
        else:
            mrc.receives(status(mask))

    mrc.posts(8 * MTU)
    assert planes_used(sent := mrc.sends_all()) == {0, 1}
    assert len(sent) == 8
    goes(0b10)
    mrc.waits(mrc.now + us(65.536 / 2))
    goes(0b11)
    mrc.waits(mrc.now + us(65.536))
    assert mrc.qp.requestor.losses[LossRule.L4] == 8
    bad = {ev for ev, state in mrc.qp.paths.states() if state is EvState.ASSUMED_BAD}
    assert bad
    assert {mrc.qp.paths.plane_of(ev) for ev in bad} == {1}, "which was up all the time"


def test_an_egress_queue_that_is_full_is_passed_over():
    """12.9: back-pressure; the owner says which planes have room."""
    mrc = Dialogue()
    mrc.device.room = 0b10
    mrc.posts(8 * MTU)
    assert planes_used(mrc.sends_all()) == {1}
    mrc.device.room = 0
    assert not mrc.device.is_stalled
    mrc.posts()
    mrc.sends_nothing()
    assert mrc.device.is_stalled
    mrc.device.room = 0b01
    assert not mrc.device.is_stalled
    mrc._drain()
    assert mrc.sends("WRITE_ONLY").out.plane == 0


def test_an_ev_probe_and_its_answer():
    """3.11, 3.12, 4.5; DSCP of data out, of control back, on the same plane."""
    mrc = Dialogue()
    number = mrc.device.probe_ev(mrc.qp, EV + 1, mrc.now)
    mrc._drain()
    sent = mrc.sends(
        "ENDPOINT_REQUEST", psn=number, op=EndpointOp.EV_PROBE, ev=EV + 1, dscp=4, dest_qp=2
    )
    assert sent.out.plane == 1
    eeth = Eeth(EndpointOp.EV_PROBE, sent.tx_timestamp)
    answer = said(MrcOpcode.ENDPOINT_RESPONSE, eeth, psn=number, dest_qp=ENDPOINT_QP)
    mrc.receives(answer, at=mrc.now + us(7))
    assert mrc.told(EvProbed) == [EvProbed(number, EV + 1, 1, us(7), mrc.now)]
    mrc.ignores(answer, "refused_response_unknown")


def test_an_ev_probe_that_nobody_answers():
    """12.11: 2 ms."""
    mrc = Dialogue()
    number = mrc.device.probe_ev(mrc.qp, EV, mrc.now)
    mrc._drain()
    start = mrc.now
    mrc.waits(start + 2 * MS)
    assert mrc.told(EvProbed) == [EvProbed(number, EV, 0, None, start + 2 * MS)]
    assert mrc.device.deadline is None


def test_an_ev_probe_of_a_plane_that_an_end_lacks_is_refused():
    """4.1: an EV is bound to a plane."""
    mrc = Dialogue()
    with pytest.raises(ValueError, match="is of plane 7, both ends have 0, 1"):
        mrc.device.probe_ev(mrc.qp, EV | 7, mrc.now)
    mrc._drain()
    mrc.sends_nothing()


def test_ev_probes_have_a_bound_and_ids_that_wrap():
    mrc = Dialogue()
    mrc.device._endpoint._next_id = 0xFFFF
    numbers = [mrc.device.probe_ev(mrc.qp, EV, mrc.now) for _ in range(1025)]
    assert numbers[:3] == [0xFFFF, 0, 1]
    assert numbers[1024] is None
    assert len(set(numbers)) == 1025


def test_an_ev_probe_of_the_peer_is_answered():
    mrc = Dialogue()
    erth = Erth(EndpointOp.EV_PROBE, tx_timestamp=77)
    request = said(MrcOpcode.ENDPOINT_REQUEST, erth, psn=0x1234, dest_qp=ENDPOINT_QP)
    mrc.receives(request, ev=EV + 1)
    sent = mrc.sends(
        "ENDPOINT_RESPONSE", psn=0x1234, op=EndpointOp.EV_PROBE, tx_timestamp=77, dscp=46
    )
    assert sent.out.plane == 1


def test_a_plane_on_which_nothing_comes_is_tested_for_the_way_back():
    """12.9: silent for 8 R while data comes on another: one EV probe per R; an answer helps."""
    mrc = Dialogue()
    probes = []
    for n in range(12):
        mrc.receives(write(1000 + n, msn=n), ev=EV, at=mrc.now + R)
        asked = [s for s in mrc.sends_all() if s.out.opcode is MrcOpcode.ENDPOINT_REQUEST]
        assert len(asked) == (n >= 8)
        probes += asked
    assert {sent.out.plane for sent in probes} == {1}
    mrc.receives(probe(1))
    assert mrc.sends_all()[0].out.plane == 0
    last = probes[-1]
    eeth = Eeth(EndpointOp.EV_PROBE, last.tx_timestamp)
    mrc.receives(said(MrcOpcode.ENDPOINT_RESPONSE, eeth, psn=last.psn, dest_qp=ENDPOINT_QP))
    for n in range(2):
        mrc.receives(probe(n))
    assert {sent.out.plane for sent in mrc.sends_all()} == {0, 1}
    assert not mrc.told(EvProbed), "that is the device's own business"


def test_answers_go_where_data_came_from():
    """12.9: reverse EVs, learnt from arriving data, round the live planes."""
    mrc = Dialogue()
    newest = [EV + (9 << 22), EV + 1 + (7 << 22)]
    for n, ev in enumerate(newest):
        mrc.receives(write(1000 + n, msn=n, tx=1), ev=ev)
    mrc.sends_all()
    for n in range(4):
        mrc.receives(probe(n), ev=newest[0])
    assert {sent.ev for sent in mrc.sends_all()} == set(newest)
