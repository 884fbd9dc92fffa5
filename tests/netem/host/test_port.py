"""One port in frame mode: what gets in, what stands before what goes out."""

import random
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether

from netem.host.host import Host
from netem.host.port import HostPort
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.port import MULTICAST_QP_NUM
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.opcodes import Service

LAB = """
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"]}]
transports: {rc: {tc: 0xa2}}
workload:
  - {op: write, from: h0, to: h1, size: 3KiB, count: 2}
  - {op: send, from: h0, to: h1, size: 5B}
  - {op: fetch_add, from: h0, to: h1, add: 3}
"""
VARIANTS = {
    "ipv6": {},
    "ipv4": {"defaults.host.family": "ipv4"},
    "ipv6-vlan": {"topology.links[0].vlan": 100},
    "ipv4-vlan": {"defaults.host.family": "ipv4", "topology.links[0].vlan": 100},
}
PLANS = {name: plan_lab(load_lab(LAB, overrides=more)) for name, more in VARIANTS.items()}


def first_frames(plan):
    """Return what h0 sends at once."""
    host = Host(plan, "h0")
    host.start(0)
    return [frame for _, frame, _ in host.transmit(0)]


FRAMES = {name: first_frames(plan) for name, plan in PLANS.items()}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def state(host):
    """Return all that a host would say and send, which is all that others can notice."""
    sent = [(port, bytes(frame), meta) for port, frame, meta in host.transmit(5)]
    return sent, list(host.events()), host.report(), host.deadline


def counters(host):
    return {name: count for name, count in host.report().counters.items() if count}


@every_variant
def test_a_host_accepts_what_its_peer_sends(variant):
    host = Host(PLANS[variant], "h1")
    frames = FRAMES[variant]
    for frame in frames:
        host.receive("p0", frame, 1)
    assert counters(host) == {"p0.roce.received_packets": len(frames)}
    assert len([*host.transmit(2)]) == 3  # one answer for each queue pair


@every_variant
def test_the_header_before_a_packet_is_the_plans(variant):
    """R21, W27: tagged frames with PCP from the traffic class where the link has a VLAN."""
    plan = PLANS[variant]
    frame = Ether(FRAMES[variant][0])
    assert (frame.src, frame.dst) == (plan.nodes[0].ports[0].mac, plan.nodes[1].ports[0].mac)
    assert (Dot1Q in frame) == variant.endswith("vlan")
    if Dot1Q in frame:
        assert (frame[Dot1Q].vlan, frame[Dot1Q].prio, frame[Dot1Q].dei) == (100, 0xA2 >> 5, 0)
    ip = frame[IP if IP in frame else IPv6]
    assert (ip.tos if IP in frame else ip.tc) == 0xA2
    assert frame[UDP].dport == 4791


@pytest.mark.parametrize("family", ["ipv6", "ipv4"])
def test_the_priority_of_a_class_is_what_the_lab_says(family):
    """Field report R21: PCP by the DSCP; G11: the code that is configured, not a lower one."""
    plan = plan_lab(
        load_lab(
            LAB,
            overrides={
                "topology.links[0].vlan": 100,
                "defaults.host.family": family,
                "transports.rc": {"dscp": 26, "pcp": 5, "ack_dscp": 46},
            },
        )
    )
    receiver = Host(plan, "h1")
    for frame in first_frames(plan):
        assert Ether(frame)[Dot1Q].prio == 5
        receiver.receive("p0", frame, 1)
    assert {Ether(frame)[Dot1Q].prio for _, frame, _ in receiver.transmit(2)} == {46 >> 3}


@pytest.mark.parametrize("family", ["ipv6", "ipv4"])
def test_with_the_tag_taken_off_the_packet_is_the_same(family):
    """R21: a tag does not touch the ICRC, nor anything else behind it."""
    plain = [frame[14:] for frame in FRAMES[family]]
    assert [frame[18:] for frame in FRAMES[f"{family}-vlan"]] == plain


def tagged(frame, vid):
    return frame[:12] + b"\x81\x00" + vid.to_bytes(2, "big") + frame[12:]


REFUSED = {
    "empty": ("ipv6", lambda f: b"", "malformed"),
    "cut in the EtherType": ("ipv6", lambda f: f[:13], "malformed"),
    "cut in the tag": ("ipv6-vlan", lambda f: f[:17], "malformed"),
    "another's MAC": ("ipv6", lambda f: b"\x02\0\0\0\0\x77" + f[6:], "foreign_mac"),
    "a tag where there is none": ("ipv6", lambda f: tagged(f, 7), "wrong_vlan"),
    "no tag where there is one": ("ipv4-vlan", lambda f: f[:12] + f[16:], "wrong_vlan"),
    "another VLAN": ("ipv4-vlan", lambda f: f[:14] + b"\x00\x65" + f[16:], "wrong_vlan"),
    "longer than the MTU": ("ipv6", lambda f: f + bytes(9000), "oversized"),
}


@pytest.mark.parametrize(("variant", "change", "why"), REFUSED.values(), ids=REFUSED)
def test_what_ethernet_refuses_has_a_reason_and_no_effect(variant, change, why):
    host, untouched = Host(PLANS[variant], "h1"), Host(PLANS[variant], "h1")
    host.receive("p0", change(FRAMES[variant][0]), 1)
    assert counters(host) == {f"p0.frame.{why}": 1}
    assert state(host)[0:2] == state(untouched)[0:2]


def test_a_tag_that_is_only_a_priority_is_accepted_where_there_is_no_vlan():
    """IEEE 802.1Q, clause 6.9.1: VID 0 names no VLAN."""
    host = Host(PLANS["ipv6"], "h1")
    host.receive("p0", tagged(FRAMES["ipv6"][0], 0x6000), 1)
    assert counters(host) == {"p0.roce.received_packets": 1}


def test_padding_behind_a_short_packet_is_ignored():
    """W23: the UDP length says where the packet ends."""
    host = Host(PLANS["ipv4"], "h1")
    host.receive("p0", FRAMES["ipv4"][0] + b"\xaa" * 7, 1)
    assert counters(host) == {"p0.roce.received_packets": 1}


def mutations(frame):
    return st.one_of(
        st.just(frame),
        st.integers(0, len(frame)).map(lambda stop: frame[:stop]),
        st.binary(max_size=40).map(lambda tail: frame + tail),
        st.tuples(st.integers(0, 70), st.integers(0, 255)).map(
            lambda hit: frame[: hit[0]] + bytes([hit[1]]) + frame[hit[0] + 1 :]
        ),
        st.integers(0, 4095).map(lambda vid: tagged(frame, vid)),
        st.tuples(st.binary(min_size=1, max_size=90), st.integers(0, 14)).map(
            lambda junk: frame[: junk[1]] + junk[0]
        ),
    )


@every_variant
@settings(max_examples=60, deadline=None)  # hosts under load are slow, not wrong
@given(data=st.data())
def test_the_fast_way_and_the_clear_way_agree(variant, data):
    """Same packets to the device, same counters, same answers, whatever arrives."""
    quick, clear = Host(PLANS[variant], "h1"), Host(PLANS[variant], "h1")
    for number in range(data.draw(st.integers(1, 8))):
        frame = data.draw(mutations(FRAMES[variant][number % len(FRAMES[variant])]))
        quick.receive("p0", memoryview(frame), number)
        clear._ports["p0"].receive_clearly(frame, number)
        assert quick._ports["p0"].touched == clear._ports["p0"].touched
    assert state(quick) == state(clear)


@every_variant
@given(frames=st.lists(st.binary(max_size=1600), max_size=12))
def test_garbage_changes_nothing_but_counters(variant, frames):
    host, untouched = Host(PLANS[variant], "h1"), Host(PLANS[variant], "h1")
    for frame in frames:
        host.receive("p0", frame, 1)
    assert sum(counters(host).values()) >= len(frames)
    sent, events, report, deadline = state(host)
    report.counters = untouched.report().counters
    assert (sent, events, report, deadline) == state(untouched)


GROUPS = {"ipv6": "ff0e::1:2:3", "ipv4": "239.129.2.3"}
GROUP_MACS = {"ipv6": "33:33:00:02:00:03", "ipv4": "01:00:5e:01:02:03"}
Q_KEY = 0x11111111


def datagram_port(variant, name):
    """Return a port of a host with a UD queue pair that has a receive posted."""
    plan = PLANS[variant]
    node = next(node for node in plan.nodes if node.name == name)
    port = HostPort(node, node.ports[0])
    device = port.device
    region = device.register(device.alloc_pd(), 0x1000, 4096, 1)
    qp = device.create_qp(region.pd, service=Service.UD)
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qkey=Q_KEY)
    qp.modify(QpState.RTR, 0)
    qp.modify(QpState.RTS, 0, sq_psn=0)
    qp.post_recv(RecvWr(1, (Sge(0x1000, 4096, region.l_key),)), 0)
    return port, qp


@pytest.mark.parametrize("variant", GROUPS)
def test_a_multicast_packet_goes_to_the_groups_ethernet_address_and_to_its_members(variant):
    one, sender = datagram_port(variant, "h0")
    two, member = datagram_port(variant, "h1")
    group = ip_address(GROUPS[variant]).packed
    mine = next(a for a in one.device.config.addresses if len(a) == len(group))
    sender.post_send(
        SendWr(
            1, WrOpcode.SEND, inline=b"to all", ah=AddressHandle(mine, group),
            remote_qp_num=MULTICAST_QP_NUM, remote_q_key=Q_KEY,
        ),
        0,
    )  # fmt: skip
    ((_, frame, _),) = one.transmit(0)
    assert Ether(frame).dst == GROUP_MACS[variant]
    two.receive(frame, 0)
    assert two.device.counters()["refused_dest_qp"] == 1
    two.device.attach_multicast(member, group)
    astray = b"\x33\x33\x00\x00\x00\x77" + frame[6:]
    two.receive(astray, 0)
    two.receive(frame, 0)
    (done,) = two.device.events()
    assert (done.wr_id, done.byte_len, done.src_qp) == (1, 46, sender.qp_num)
    assert two.touched == {member.qp_num}


LONG = {
    name: plan_lab(load_lab(LAB.replace("3KiB", "24KiB"), overrides=more))
    for name, more in VARIANTS.items()
}


@every_variant
@pytest.mark.parametrize("seed", range(3))
def test_a_frame_of_a_known_flow_is_taken_as_any_other_and_so_is_one_in_two_parts(
    variant, seed
):
    """Marked, damaged, doubled and missing ones are among them."""
    rng = random.Random(seed)
    plan = LONG[variant]
    clear, fast, parts = (Host(plan, "h1") for _ in range(3))
    for number, frame in enumerate(first_frames(plan)):
        sent = bytearray(frame)
        chance = rng.random()
        if chance < 0.1 and variant == "ipv6":
            sent[15] |= 0x30  # CE
        elif chance < 0.13:
            sent[rng.randrange(len(sent))] ^= 1 << rng.randrange(8)
        elif chance < 0.15:
            continue
        for _ in range(1 + (chance > 0.97)):
            whole = bytes(sent)
            clear._ports["p0"].receive_clearly(whole, number)
            is_quiet = fast.receive("p0", whole, number)
            split = bytes(62) + whole[62:]
            assert parts.receiver("p0")(whole[:62], split, number) == is_quiet
            if is_quiet:
                assert not fast._ports["p0"].device.rendered
    assert state(clear) == state(fast) == state(parts)


SHORT = {
    name: plan_lab(
        load_lab(
            LAB.replace("count: 2", "count: 30").replace("3KiB", "2B"),
            overrides={**more, "transports.rc": {"window": 2, "timeout": 14}},
        )
    )
    for name, more in VARIANTS.items()
}


@every_variant
@pytest.mark.parametrize("seed", range(3))
def test_a_dialogue_of_short_messages_is_the_same_by_the_fast_way(variant, seed):
    """Requests of one packet and their answers, each way; some are lost, damaged or doubled."""
    plan, rng = SHORT[variant], random.Random(seed)
    clear, fast = ([Host(plan, name) for name in ("h0", "h1")] for _ in range(2))
    for host in (*clear, *fast):
        host.start(0)
    now = 0
    for number in range(200):
        now += 1000
        sender, receiver = number % 2, 1 - number % 2
        if (due := fast[sender].deadline) is not None and number % 40 > 30:
            now = max(now, due)
        for hosts in (clear, fast):
            hosts[sender].expire(now)
        sent = [bytes(frame) for _, frame, _ in fast[sender].transmit(now)]
        assert sent == [bytes(frame) for _, frame, _ in clear[sender].transmit(now)]
        for frame in sent:
            chance, damaged = rng.random(), bytearray(frame)
            if chance < 0.05:
                damaged[rng.randrange(14, len(frame))] ^= 1 << rng.randrange(8)
            for _ in range(0 if chance > 0.98 else 1 + (chance > 0.95)):
                clear[receiver]._ports["p0"].receive_clearly(bytes(damaged), now)
                fast[receiver].receive("p0", bytes(damaged), now)
    assert [state(host) for host in clear] == [state(host) for host in fast]
    assert fast[0].is_done
