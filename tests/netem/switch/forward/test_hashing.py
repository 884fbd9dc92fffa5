"""The hash of flows: what it looks at, how well it spreads, what a seed changes."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrSegmentRouting

from netem.switch.forward import hashing
from netem.switch.forward.entropy import FORMATS
from netem.switch.forward.hashing import FIELDS, FlowHash
from netem.topology.switch_model import EV_FIELDS, HASH_FIELDS
from netem.topology.switch_plan import LoadBalancing
from tests.netem.switch.forward.rig import ip4, ip6, udp
from tests.wire.strategies import moderate

DEFAULT = LoadBalancing().fields


def number(packet, *, seed=1, fields=DEFAULT, ingress=0):
    """Return the hash by a switch that has never seen the flow."""
    return FlowHash(fields, seed).of(bytes(packet), 0, ingress)


BASE6 = {"src": "fd00::1", "dst": "fd00::2", "flow_label": 5}
BASE4 = {"src": "198.18.0.1", "dst": "198.18.0.2"}


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("src", ip6(**{**BASE6, "src": "fd00::3"})),
        ("dst", ip6(**{**BASE6, "dst": "fd00::3"})),
        ("sport", ip6(payload=udp(0xC002), **BASE6)),
        ("dport", ip6(payload=udp(dport=4971), **BASE6)),
        ("flow_label", ip6(**{**BASE6, "flow_label": 6})),
        ("protocol", ip6(next_header=6, **BASE6)),
    ],
)
def test_each_field_counts_where_it_is_chosen_and_only_there(field, change):
    packet = ip6(**BASE6)
    assert number(packet, fields=(field,)) != number(change, fields=(field,))
    others = tuple(name for name in DEFAULT if name != field)
    assert number(packet, fields=others) == number(change, fields=others)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("src", ip4(**{**BASE4, "src": "198.18.0.3"})),
        ("dst", ip4(**{**BASE4, "dst": "198.18.0.3"})),
        ("sport", ip4(payload=udp(0xC002), **BASE4)),
        ("dport", ip4(payload=udp(dport=4971), **BASE4)),
        ("protocol", ip4(protocol=6, **BASE4)),
    ],
)
def test_each_field_of_ipv4_counts_where_it_is_chosen_and_only_there(field, change):
    packet = ip4(**BASE4)
    assert number(packet, fields=(field,)) != number(change, fields=(field,))
    others = tuple(name for name in DEFAULT if name != field)
    assert number(packet, fields=others) == number(change, fields=others)


def test_the_port_counts_where_it_is_chosen():
    packet = ip6()
    assert number(packet, ingress=0) == number(packet, ingress=1)
    fields = (*DEFAULT, "port")
    assert number(packet, ingress=0, fields=fields) != number(packet, ingress=1, fields=fields)


@pytest.mark.parametrize("make", [ip6, ip4])
def test_the_queue_pair_counts_where_it_is_chosen(make):
    """Meta's remedy for few large flows, switch.md 6."""
    one, two = (
        make(payload=udp(payload=bytes((10, 64, 255, 255, 0, 0, 0, qp)) + bytes(20)))
        for qp in (17, 18)
    )
    assert number(one) == number(two)
    fields = (*DEFAULT, "dest_qp")
    assert number(one, fields=fields) != number(two, fields=fields)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param(ip6(), ip6(hop_limit=9, traffic_class=0xFF), id="what routers change"),
        pytest.param(ip4(), ip4(ttl=9, tos=0xFF, identification=77), id="of IPv4 as well"),
        pytest.param(ip6(), ip6(payload=udp(payload=bytes(99))), id="the payload"),
        pytest.param(
            IPv6() / UDP(sport=9, dport=7) / bytes(20),
            IPv6() / IPv6ExtHdrDestOpt() / UDP(sport=9, dport=7) / bytes(20),
            id="options in between",
        ),
        pytest.param(
            IPv6() / UDP(sport=9, dport=7) / bytes(20),
            IPv6() / IPv6ExtHdrSegmentRouting(addresses=["fd00::9"]) / UDP(sport=9, dport=7),
            id="an SRH in between",
        ),
        pytest.param(
            IP() / TCP(sport=9, dport=7) / bytes(20),
            IP(options=[IPOption(b"\x94\x04\0\0")]) / TCP(sport=9, dport=7),
            id="IPv4 options",
        ),
        pytest.param(
            IP(flags="MF", id=1) / UDP(sport=9, dport=7) / bytes(20),
            IP(frag=3, id=1, proto=17) / bytes(40),
            id="parts of one packet",
        ),
        pytest.param(
            ip6(payload=ip6(), next_header=41),
            ip6(payload=ip6("fd00::77", flow_label=9), next_header=41),
            id="what is in a tunnel",
        ),
    ],
)
def test_these_are_one_flow(one, two):
    assert number(one) == number(two)


def test_a_flow_that_is_known_has_the_number_that_it_had_at_first():
    """The memory changes nothing, not even when it is full and begins anew."""
    known = FlowHash(DEFAULT, 3)
    packets = [ip6(payload=udp(sport)) for sport in range(100)] + [ip4(), ip6(next_header=59)]
    first = [known.of(packet, 0, 0) for packet in packets]
    assert [known.of(packet, 0, 0) for packet in packets] == first
    assert first == [number(packet, seed=3) for packet in packets]


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(hashing, "MAX_FLOWS", 8)
    known = FlowHash(DEFAULT, 3)
    for sport in range(100):
        assert known.of(ip6(payload=udp(sport)), 0, 0) == number(
            ip6(payload=udp(sport)), seed=3
        )


@moderate
@given(st.binary(min_size=40, max_size=90), st.integers(0, 5))
def test_any_bytes_have_a_number(octets, ingress):
    for version in (0x60, 0x45, 0x4F):
        packet = bytes((version,)) + octets[1:]
        for fields in (DEFAULT, FIELDS):
            assert 0 <= number(packet, fields=fields, ingress=ingress) < 1 << 32


def test_a_field_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="hash field colour: legal are src, dst"):
        FlowHash(("colour",), 1)


# -- quality -------------------------------------------------------------------------------


def flows(count, seed=0):
    """Return packets of flows as hosts make them: neighbouring addresses, random ports."""
    rng = Random(seed)
    return [
        ip6(
            f"fd00::{2 + n % 7:x}",
            udp(0xC000 | rng.getrandbits(14)),
            src=f"fd00::{9 + n % 5:x}",
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [2, 3, 4, 8, 12, 16])
def test_flows_spread_evenly(count):
    """Chi-square at 1 in 1000 for the largest table of the test."""
    hashed = Counter(number(packet) * count >> 32 for packet in flows(2000))
    expected = 2000 / count
    chi2 = sum((hashed[bucket] - expected) ** 2 / expected for bucket in range(count))
    assert chi2 < 2.2 * count + 12


@pytest.mark.parametrize("what", ["addresses", "ports", "labels"])
def test_flows_that_differ_in_one_number_spread_evenly(what):
    """Consecutive numbers must not become consecutive paths, nor one."""
    make = {
        "addresses": lambda n: ip6(f"fd00::{1 + n % 64:x}", src=f"fd00::{1 + n // 64:x}"),
        "ports": lambda n: ip6(payload=udp(0xC000 + n)),
        "labels": lambda n: ip6(flow_label=n),
    }[what]
    hashed = Counter(number(make(n)) * 8 >> 32 for n in range(4096))
    assert len(hashed) == 8
    assert all(420 < count < 610 for count in hashed.values())


def test_flows_between_many_hosts_have_numbers_of_their_own():
    """What a modulus with a pattern would make one: (s, d) and (s + 1, d - 64)."""
    hashed, packet, numbers = FlowHash(DEFAULT, 1), bytearray(ip6()), set()
    for source in range(16):
        for target in range(64, 256):
            packet[23], packet[39] = source, target
            numbers.add(hashed.of(packet, 0, 0))
    assert len(numbers) == 16 * 192


@pytest.mark.parametrize("paths", [2, 4, 8])
def test_two_seeds_choose_independently(paths):
    """Of the flows that one seed sends by one path, another seed uses every path alike."""
    packets = flows(2000)
    first = [number(packet, seed=11) * paths >> 32 for packet in packets]
    for path in range(paths):
        there = [p for p, chosen in zip(packets, first, strict=True) if chosen == path]
        second = Counter(number(packet, seed=12) * paths >> 32 for packet in there)
        assert len(second) == paths
        expected = len(there) / paths
        assert all(abs(count - expected) < 5 * expected**0.5 for count in second.values())


def test_g08_sixteen_queue_pairs_use_at_least_three_of_four_paths():
    """Field report G08, for twenty labs; a source port per queue pair is the host's part."""
    for lab in range(20):
        packets = flows(16, seed=lab)
        assert len({number(packet, seed=lab) * 4 >> 32 for packet in packets}) >= 3
        assert len({number(packet, seed=lab) for packet in packets[:1] * 50}) == 1


def test_lab_files_know_the_same_fields():
    """The names are written twice, since a plan must not know a switch from within."""
    assert set(FIELDS) == set(HASH_FIELDS)
    assert {form: set(layout) for form, layout in FORMATS.items()} == {
        form: set(names) for form, names in EV_FIELDS.items()
    }
