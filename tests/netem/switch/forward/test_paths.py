"""Which of several equal next hops: by flow, by packet, by entropy value; ports that fail."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.switch.forward.entropy import FORMATS, EntropyReader
from netem.topology.switch_plan import LoadBalancing
from tests.netem.switch.forward.rig import Bench, frame, ip4, ip6, route, udp
from tests.wire.strategies import moderate

FOUR = (route("fd00::/16", 1, 2, 3, 4), route("198.18.0.0/15", 1, 2, 3, 4))


def flow(number, make=ip6):
    return frame(make(payload=udp(0xC000 + number)))


def balanced(mode, *, seed=1, routes=FOUR, **options):
    return Bench(*routes, balance=LoadBalancing(mode=mode, **options), hash_seed=seed)


# -- by flow -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ip6, ip4])
def test_packets_of_a_flow_take_one_path(make):
    bench = balanced("ecmp")
    for number in range(50):
        assert len({bench.way(flow(number, make)) for _ in range(5)}) == 1
    assert {bench.way(flow(number, make)) for number in range(50)} == {1, 2, 3, 4}


def test_the_seed_decides_the_paths():
    by_seed = [
        [balanced("ecmp", seed=seed).way(flow(number)) for number in range(64)]
        for seed in (1, 1, 2)
    ]
    assert by_seed[0] == by_seed[1]
    assert by_seed[0] != by_seed[2]


def test_only_flows_of_the_dead_port_move_and_they_come_back():
    bench = balanced("ecmp")
    before = {number: bench.way(flow(number)) for number in range(400)}
    bench.forwarder.set_carrier("e3", False)
    during = {number: bench.way(flow(number)) for number in range(400)}
    moved = {number for number in before if before[number] != during[number]}
    assert moved == {number for number, way in before.items() if way == 3}
    shares = Counter(during[number] for number in moved)  # to the others alike
    assert shares.keys() == {1, 2, 4}
    assert min(shares.values()) > len(moved) / 6
    bench.forwarder.set_carrier("e3", True)
    assert {number: bench.way(flow(number)) for number in range(400)} == before


def test_one_port_that_is_left_takes_all_and_with_none_packets_are_lost():
    bench = balanced("ecmp")
    for port in ("e1", "e2", "e3"):
        bench.forwarder.set_carrier(port, False)
    assert {bench.way(flow(number)) for number in range(40)} == {4}
    bench.forwarder.set_carrier("e4", False)
    assert bench.drops(flow(1)) == ("port_down", [])


# -- by packet -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_round_robin_takes_turns(seed):
    bench = balanced("spray", seed=seed)
    ways = [bench.way(flow(1)) for _ in range(12)]
    assert sorted(ways[:4]) == [1, 2, 3, 4]
    assert ways == ways[:4] * 3


def test_switches_do_not_begin_their_turns_alike():
    assert len({balanced("spray", seed=seed).way(flow(1)) for seed in range(30)}) == 4


def test_random_spray_is_even_and_seeded():
    rows = [
        [bench.way(flow(1)) for _ in range(2000)]
        for bench in (balanced("spray", spray="random", seed=seed) for seed in (1, 1, 2))
    ]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]
    assert all(430 < count < 570 for count in Counter(rows[0]).values())
    pairs = Counter(zip(rows[0], rows[0][1:], strict=False))  # and one says nothing of the next
    assert len(pairs) == 16
    assert all(80 < count < 175 for count in pairs.values())


def test_the_least_queue_gets_the_packet_and_equals_take_turns():
    bench = Bench(
        *FOUR,
        balance=LoadBalancing(mode="spray", spray="least_queue"),
        backlog={"e1": 500, "e2": 100, "e3": 100, "e4": 900},
    )
    ways = [bench.way(flow(1)) for _ in range(10)]
    assert Counter(ways) == {2: 5, 3: 5}
    bench.waiting["e4"] = 0
    assert [bench.way(flow(1)) for _ in range(3)] == [4, 4, 4]


@pytest.mark.parametrize("spray", ["round_robin", "random", "least_queue"])
def test_spray_passes_a_dead_port_over(spray):
    bench = balanced("spray", spray=spray)
    bench.forwarder.set_carrier("e2", False)
    assert {bench.way(flow(1)) for _ in range(60)} == {1, 3, 4}
    bench.forwarder.set_carrier("e2", True)
    assert {bench.way(flow(1)) for _ in range(60)} == {1, 2, 3, 4}


# -- by entropy value, mrc.md 12.4 -----------------------------------------------------------


def stev(hop0=0, hop1=0, hop2=0, salt=0x55, plane=0):
    return hop0 << 22 | hop1 << 14 | hop2 << 10 | salt << 3 | plane


def with_ev(value):
    return frame(ip6(payload=udp(value & 0xFFFF), flow_label=value >> 16))


def test_the_field_of_the_tier_names_the_uplink():
    for field, other in (("hop0", "hop1"), ("hop1", "hop0")):
        bench = balanced("ev", fields=(field,))
        for index in range(4):
            for noise in range(4):
                packet = with_ev(
                    stev(**{field: index, other: noise}, plane=noise, salt=1 + noise)
                )
                assert bench.way(packet) == 1 + index


def test_a_value_that_names_no_uplink_wraps_around():
    assert balanced("ev", fields=("hop0",)).way(with_ev(stev(hop0=6))) == 3


def test_udp16_is_in_the_source_port():
    bench = balanced("ev", fields=("hop0",), ev_format="udp16")
    for index in range(4):
        port = 0xC000 | 5 << 11 | index << 3 | 6
        assert bench.way(frame(ip6(payload=udp(port), flow_label=0xFFFFF))) == 1 + index
        assert bench.way(frame(ip4(payload=udp(port)))) == 1 + index


def test_ipv4_carries_udp16_also_where_ipv6_carries_stev32():
    bench = balanced("ev", fields=("hop0",))
    assert bench.way(frame(ip4(payload=udp(0xC000 | 2 << 3)))) == 3


def test_two_fields_are_one_number():
    bench = balanced("ev", fields=("plane", "hop0"))
    assert bench.way(with_ev(stev(plane=1, hop0=2))) == 1 + (1 << 10 | 2) % 4


def test_the_path_of_a_dead_port_stays_dead():
    """mrc.md 5: tables do not change when links fail; the sender avoids the path."""
    bench = balanced("ev", fields=("hop0",))
    bench.forwarder.set_carrier("e3", False)
    assert bench.drops(with_ev(stev(hop0=2))) == ("port_down", [])
    assert bench.way(with_ev(stev(hop0=1))) == 2


@moderate
@given(st.binary(min_size=40, max_size=80), st.sampled_from([0x60, 0x45, 0x4F]))
def test_any_bytes_have_an_entropy_value(octets, first):
    packet = bytes((first,)) + octets[1:]
    for form, layout in FORMATS.items():
        reader = EntropyReader(form, tuple(layout))
        assert reader.of(packet, 0) >= 0


@moderate
@given(st.integers(0, (1 << 32) - 1))
def test_the_value_is_read_the_same_with_and_without_options(value):
    reader = EntropyReader("stev32", ("hop0", "hop1", "hop2", "salt", "plane"))
    payload = udp(value & 0xFFFF)
    plain = ip6(payload=payload, flow_label=value >> 16)
    options = bytes((17, 0, 1, 4, 0, 0, 0, 0))
    longer = ip6(payload=options + payload, next_header=60, flow_label=value >> 16)
    assert reader.of(plain, 0) == reader.of(longer, 0) == value
    swapped = EntropyReader("stev32", ("hop0", "hop1", "hop2", "salt", "plane"), "label_low")
    halves = (value & 0xFFFF) << 16 | value >> 16
    assert swapped.of(plain, 0) == swapped.of(longer, 0) == halves


@pytest.mark.parametrize(
    ("form", "fields", "message"),
    [
        ("stev31", ("hop0",), "ev format stev31: legal are stev32, udp16"),
        ("udp16", ("hop1",), "ev field 'hop1': legal with udp16 are plane, hop0, salt"),
        ("stev32", (), "ev field '': legal with stev32 are hop0"),
    ],
)
def test_formats_and_fields_that_there_are_not_are_refused(form, fields, message):
    with pytest.raises(ValueError, match=message):
        EntropyReader(form, fields)


# -- static --------------------------------------------------------------------------------


def test_static_is_always_the_first_and_has_no_other():
    bench = balanced("static")
    assert {bench.way(flow(number)) for number in range(40)} == {1}
    bench.forwarder.set_carrier("e1", False)
    assert bench.drops(flow(1)) == ("port_down", [])


# -- two tiers -----------------------------------------------------------------------------


def core_links(seeds, count=64, lab=0):
    """Return how many flows each of 16 core links carries: 4 leaves' uplinks, 4 of each spine.

    One leaf chooses a spine for each flow, the spine chooses among its own four links.
    """
    rng = Random(lab)
    leaf = Bench(route("fd00::/16", 1, 2, 3, 4), hash_seed=seeds[0])
    spines = [Bench(route("fd00::/16", 1, 2, 3, 4), hash_seed=seed) for seed in seeds[1:]]
    used = Counter()
    for number in range(count):
        packet = frame(
            ip6(f"fd00::{2 + number % 16:x}", udp(0xC000 | rng.getrandbits(14)), src="fd00::1")
        )
        spine = leaf.way(packet)
        used[spine, spines[spine - 1].way(packet)] += 1
    return used


@pytest.mark.parametrize("lab", range(4))
def test_g09_a_seed_per_switch_uses_every_core_link(lab):
    """Field report G09: 64 flows, tiers of 4; chance leaves at most one of 16 links out."""
    seeds = [1000 * lab + 77 * n + 13 for n in range(5)]
    assert len(core_links(seeds, lab=lab)) >= 15
    assert len(core_links(seeds, count=128, lab=lab)) == 16


def test_g09_the_same_seed_leaves_three_of_four_core_links_idle():
    """The teaching case: what a spine sees has all hashed to one bucket already."""
    assert len(core_links([7] * 5)) == 4


def test_polarisation_stays_with_a_seed_that_is_only_added():
    """Why the seed is mixed in: another constant on top would move flows, not spread them."""
    packets = [frame(ip6(payload=udp(0xC000 + n))) for n in range(256)]
    leaf, spine = (Bench(*FOUR, hash_seed=seed) for seed in (1, 2))
    by_leaf = Counter()
    for packet in packets:
        by_leaf[leaf.way(packet), spine.way(packet)] += 1
    assert len(by_leaf) == 16  # with one constant for another there would be 4
