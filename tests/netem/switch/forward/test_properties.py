"""What holds for any frame: nothing raises, nothing is lost count of, both paths agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from netem.switch.forward.reasons import Reason
from netem.switch.forwarder import Decision, Drop, Flood, Punt
from netem.switch.pipeline import Switch
from netem.topology.switch_plan import LoadBalancing, SteerPlan
from tests.netem.switch.forward.rig import (
    PORTS,
    SWITCH4,
    SWITCH6,
    Bench,
    frame,
    ip4,
    ip6,
    node,
    own,
    packed,
    route,
    sid,
    udp,
)
from transports.srv6.outcome import Reason as Srv6Reason

many = settings(max_examples=100, deadline=None, derandomize=True, database=None)

PLAN = {
    "sids": (
        sid("fcbb:bb00:101::/48", "uN", flavours=("psp", "usd")),
        sid("fcbb:bb00:102::/48", "uN"),
        sid("fcbb:bb00:e001::/48", "uA", 3, 4),
        sid("fcbb:bb00:d001::/48", "uDT46"),
        sid("fc00:1::/64", "End"),
        sid("fc00:2::/64", "End.X", 2),
        sid("fc00:6::/64", "End.DX6", 5),
        sid("fc00:4::/64", "End.DX4", 5),
    ),
    "steer": (SteerPlan("fd0b::/16", ("fcbb:bb00:201:301::",), SWITCH6),),
    "srv6_errors": True,
}
ROUTES = (
    route("fd00::/16", 1, 2, 3),
    route("fcbb:bb00:201::/48", 4),
    route("198.18.0.0/15", 1, 2),
    route("fc00::/16", 5),
)
DESTINATIONS = [
    "fd00::2", "fd00::3", SWITCH6, "fd0b::1", "2001:db8::1", "ff02::1", "fe80::1", "::1",
    "fcbb:bb00:101:201::", "fcbb:bb00:102:101:201::", "fcbb:bb00:101::", "fcbb:bb00:e001:201::",
    "fcbb:bb00:101:102:777::", "fcbb:bb00:d001::", "fcbb:bb00:777::", "fc00:1::", "fc00:2::",
    "fc00:6::", "fc00:4::", "fc00:9::",
]  # fmt: skip
DESTINATIONS4 = [
    "198.18.0.2",
    "10.0.0.1",
    "224.0.0.1",
    SWITCH4,
    "255.255.255.255",
]

hop_limits = st.sampled_from([0, 1, 2, 64, 255])
bodies = st.binary(max_size=60) | st.builds(udp, st.integers(0, 65535), st.integers(0, 65535))


@st.composite
def srhs(draw, inner):
    segments = draw(st.lists(st.sampled_from(DESTINATIONS), min_size=1, max_size=2))
    left = draw(st.integers(0, 5))
    head = bytes((draw(st.sampled_from([41, 4, 17, 59])), 2 * len(segments), 4, left))
    head += bytes((len(segments) - 1, 0, 0, 0))
    return head + b"".join(packed(each) for each in segments) + draw(inner)


packets4 = st.builds(
    ip4, st.sampled_from(DESTINATIONS4), bodies, st.integers(0, 255), ttl=hop_limits,
    src=st.sampled_from(["198.18.0.1", "127.0.0.1", "0.0.0.0"]),
)  # fmt: skip


@st.composite
def packets6(draw, depth=1):
    inner = (bodies | packets4 | packets6(depth - 1)) if depth else bodies
    kind = draw(st.sampled_from([17, 41, 4, 43, 58, 59, 0, 44, 60]))
    payload = draw(srhs(inner) if kind == 43 else inner)
    return ip6(
        draw(st.sampled_from(DESTINATIONS)), payload, kind, hop_limit=draw(hop_limits),
        src=draw(st.sampled_from(["fd00::1", "fd00::77", "::", "ff02::1"])),
        flow_label=draw(st.integers(0, 0xFFFFF)), traffic_class=draw(st.integers(0, 255)),
    )  # fmt: skip


@st.composite
def frames(draw):
    """Good frames, and frames with something wrong."""
    packet = draw(packets6() | packets4)
    port = draw(st.integers(0, PORTS - 1))
    mac = draw(st.sampled_from([None, None, None, own(2), b"\xff" * 6, b"\x02\xdd\0\0\0\1"]))
    vid = draw(st.sampled_from([None, None, None, 0, 5]))
    out = bytearray(frame(packet, port, mac=mac, vid=vid))
    match draw(st.sampled_from(["whole", "whole", "cut", "flipped", "padded"])):
        case "cut":
            del out[draw(st.integers(0, len(out) - 1)) :]
        case "flipped":
            bit = draw(st.integers(0, 8 * len(out) - 1))
            out[bit >> 3] ^= 1 << (bit & 7)
        case "padded":
            out += bytes(draw(st.integers(1, 40)))
    return port, bytes(out)


KNOWN = {reason.value for reason in Reason} | {f"srv6_{reason.value}" for reason in Srv6Reason}
OF_THE_BRIDGE = {"filtered", "not_bridged"}


@many
@given(st.lists(frames() | st.tuples(st.just(0), st.binary(max_size=80)), max_size=3))
def test_any_frame_ends_in_one_verdict_and_drops_have_known_names(arrivals):
    bench = Bench(*ROUTES, **PLAN)
    for now, (port, octets) in enumerate(arrivals):
        verdict = bench.ask(octets, port, now)
        match verdict:
            case Decision(out_port, out):
                assert out_port in {f"e{n}" for n in range(PORTS)}
                assert len(out) >= 14
            case Drop(reason, answers):
                assert reason in KNOWN | OF_THE_BRIDGE
                assert len(answers) <= 1
            case Flood(ports):
                assert f"e{port}" not in ports
            case Punt(answers):
                assert len(answers) <= 1


@many
@given(st.lists(frames(), min_size=1, max_size=2))
def test_the_hot_path_and_the_clear_path_agree(arrivals):
    """A forwarder that knows every destination, and one that knows none, to the byte."""
    for port, octets in arrivals:
        cold, warm = Bench(*ROUTES, **PLAN), Bench(*ROUTES, **PLAN)
        warm.ask(octets, port)
        before = warm.forwarder.counters()
        one, two = cold.ask(octets, port, 10**9), warm.ask(octets, port, 10**9)
        assert same(one) == same(two)
        after = warm.forwarder.counters()
        gained = {name: after[name] - before[name] for name in after}
        flooded = gained.pop("flooded"), cold.forwarder.counters()["flooded"]
        assert flooded[0] <= flooded[1]
        assert gained == {n: c for n, c in cold.forwarder.counters().items() if n != "flooded"}


def same(verdict):
    """Return a verdict with its buffers as bytes."""
    if isinstance(verdict, Decision | Flood):
        return type(verdict), verdict[0], bytes(verdict.frame)
    reason = verdict.reason if isinstance(verdict, Drop) else ""
    return type(verdict), reason, [(a.port, bytes(a.frame)) for a in verdict.answers]


@many
@given(packets6() | packets4, st.sampled_from(["ecmp", "spray", "ev", "static"]))
def test_what_goes_in_comes_out_the_same_but_for_its_hop_limit(packet, mode):
    fields = ("hop0",) if mode == "ev" else LoadBalancing().fields
    balance = LoadBalancing(mode=mode, fields=fields)
    bench = Bench(route("::/0", 1, 2), route("0.0.0.0/0", 1, 2), balance=balance)
    verdict = bench.ask(frame(packet))
    if isinstance(verdict, Decision):
        out = bytearray(verdict.frame[14:])
        hop = 7 if packet[0] >> 4 == 6 else 8
        assert out[hop] == packet[hop] - 1
        out[hop] += 1
        if hop == 8:
            out[10:12] = packet[10:12]
        assert out == packet


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(frames(), max_size=20))
def test_the_whole_switch_loses_count_of_nothing(arrivals):
    """received + copies + originated = sent + dropped + consumed, through the pipeline."""
    switch = Switch(node(*ROUTES, **PLAN))
    for now, (port, octets) in enumerate(arrivals):
        switch.receive(f"e{port}", memoryview(octets), now)
    out = [row for row in switch.transmit(100) if not row[2].killed]
    counted = switch.report().counters
    assert counted["received"] == len(arrivals)
    assert counted["sent"] == len(out)
    assert counted["queued"] == 0
    came = counted["received"] + counted["copies"] + counted["originated"]
    assert came == counted["sent"] + counted["dropped"] + counted["consumed"]
    reasons = sum(n for name, n in counted.items() if name.startswith("dropped_"))
    assert reasons == counted["dropped"]
