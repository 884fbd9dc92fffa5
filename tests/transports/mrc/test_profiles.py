"""EV profiles and their expansion: sets worked by hand from the rule of the public API."""

from random import Random

import pytest

from netem.switch.forward.entropy import FORMATS
from transports.mrc.profiles import (
    LAYOUTS,
    SRV6,
    STEV32,
    UDP16,
    EvField,
    EvFormat,
    EvProfile,
    MaskFill,
    draw,
    srv6,
)


def profile(widths, *fields):
    return EvProfile(EvFormat("test", widths), tuple(EvField(*field) for field in fields))


BYTES = (8, 8)
# width, init, min, max, mask; then EV, expanded with HIGH_FIRST, with LOW_FIRST
WORKED = [
    pytest.param(
        profile((16, 16), (16, 0, 0, 0xFFFF, 0xFFFF), (16, 0, 0, 0xFFFF, 0xFFFF)),
        0x12345678, 0x12345678, 0x2C481E6A,
        id="two whole fields: as it is, and each field mirrored",
    ),
    pytest.param(
        profile(BYTES, (8, 0xAB), (8, 0, 0, 255, 0xFF)), 0x01, 0xAB01, 0xAB80,
        id="a fixed field takes no bit",
    ),
    pytest.param(
        profile((16,), (16, 0xA0A0, 0, 255, 0x0F0F)), 0xC5, 0xACA5, 0xAAA3,
        id="a mask with holes",
    ),
    pytest.param(
        profile(BYTES, (4, 0x9, 0, 3, 0x6), (8, 0x81, 0, 3, 0x18)), 0b1001, 0x0D89, 0x0B91,
        id="a field narrower than its place: zeros to its left",
    ),
    pytest.param(
        profile((8, 8, 16), (8, 0, 0, 15, 0xF0)), 0x6, 0x60000000, 0x60000000,
        id="places without a field are zeros",
    ),
    pytest.param(
        profile((3, 5), (3, 7, 0, 1, 0b010), (5, 0b10101, 0, 7, 0b01110)),
        0b0110, 0b101_11101, 0b101_10111,
        id="what the mask covers of init is overwritten, zeros too",
    ),
    pytest.param(
        profile((10, 8, 4, 7, 3), (10, 0, 0, 3, 3), (8,), (4,), (7, 0x55), (3, 0, 0, 7, 7)),
        0b10_011, 2 << 22 | 0x55 << 3 | 3, 1 << 22 | 0x55 << 3 | 6,
        id="stev32 with four uplinks and eight planes",
    ),
    pytest.param(
        srv6(0xFCBBBB00, 3, (1, 2), 16, 7),
        5, 0xFCBBBB00_3101_3205_3102_3807_0000_0000, 0xFCBBBB00_3101_32A0_3102_3807_0000_0000,
        id="an SRv6 address, mrc-emu/1 12.5",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("worked", "ev", "high", "low"), WORKED)
def test_an_expansion_worked_by_hand(worked, ev, high, low):
    assert worked.expand(ev) == high
    assert worked.expand(ev, MaskFill.LOW_FIRST) == low


@pytest.mark.parametrize(
    ("widths", "fields", "says"),
    [
        ((8,), [(8,), (8,)], "2 fields, the format has 1"),
        ((8,), [(9,)], "field 0: 9 bits wide, legal are 1 to 8"),
        ((8,), [(0,)], "0 bits wide"),
        ((8,), [(4, 16)], "init 0x10 does not fit 4 bits"),
        ((8,), [(4, 0, 0, 0, 0x10)], "mask 0x10 does not fit 4 bits"),
        ((8,), [(8, 0, 0, 4, 0x11)], "max 0x4 does not fit the 2 bits of mask 0x11"),
        ((8,), [(8, 0, 0, 1)], "max 0x1 does not fit the 0 bits of mask 0x0"),
        ((8,), [(8, 0, 3, 2, 3)], "min 0x3, legal are 0 to max 0x2"),
        ((128, 129), [(8,)], "257 bits, legal are 256"),
    ],
)
def test_a_profile_that_is_not_legal_says_why(widths, fields, says):
    with pytest.raises(ValueError, match=says):
        profile(widths, *fields)


def test_an_ev_that_is_too_wide_is_refused():
    with pytest.raises(ValueError, match="EV 0x100 does not fit the 8 bits"):
        profile((8,), (8, 0, 0, 255, 255)).expand(0x100)


def test_generated_evs_count_the_last_field_fastest_within_its_bounds():
    generating = profile(BYTES, (8, 0, 1, 2, 0b11), (8, 0x80, 0, 1, 0b1))
    assert [generating.expand(ev) for ev in generating.values()] == [
        0x0180, 0x0181, 0x0280, 0x0281,
    ]  # fmt: skip


def test_the_presets_generate_every_way_of_every_plane():
    assert [STEV32.make(*way) for way in ((0, 0), (1, 0), (0, 1), (1, 1))] == [
        0x2A8, 0x2A9, 0x4002A8, 0x4002A9,
    ]  # fmt: skip
    stev32 = STEV32.profile((0, 1), 2)
    assert [stev32.expand(ev) for ev in stev32.values()] == [0x2A8, 0x2A9, 0x4002A8, 0x4002A9]
    udp16 = UDP16.profile((0, 1), 2)
    assert [f"{udp16.expand(ev):016b}" for ev in udp16.values()] == [
        "1100000000000001", "1100000000001001", "1100100000000001", "1100100000001001",
    ]  # fmt: skip
    address = srv6(0xFCBBBB00, 0, (0, 1), 2, 4)
    assert address.format is SRV6
    assert [f"{address.expand(ev):032x}" for ev in address.values()] == [
        "fcbbbb00010002000101080400000000", "fcbbbb00010002010101080400000000",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["stev32", "udp16"])
def test_layouts_are_those_that_switches_read(name):
    layout = LAYOUTS[name]
    fields = {
        field: (layout.shift(field), dict(layout.fields)[field])
        for field, _ in layout.fields if field
    }  # fmt: skip
    assert fields == FORMATS[name]


def test_a_vector_of_the_profile():
    """mrc-emu/1, 12.15: hop0 5, salt 0x55, plane 3."""
    ev = STEV32.make(3, 5)
    assert ev == 0x014002AB
    assert STEV32.plane_of(ev) == 3
    assert STEV32.describe(ev) == "plane 3 hop0 5 salt 0x55"


def test_a_draw_shares_equally_and_takes_each_way_once_first():
    active, backup = draw(STEV32, range(8), 4, 16, Random(1))
    assert len(set(active) | set(backup)) == 32
    for plane in range(8):
        ways = [STEV32.read(ev, "hop0") for ev in (*active, *backup) if ev & 7 == plane]
        assert sorted(ways) == [0, 1, 2, 3]
        assert sum(ev & 7 == plane for ev in active) == 2


@pytest.mark.parametrize("planes", [(0, 1, 2, 3), (1, 4, 6)])
def test_the_planes_of_a_draw_take_turns(planes):
    for evs in draw(STEV32, planes, 4, 32, Random(1)):
        turns = [planes.index(ev & 7) for ev in evs]
        assert turns == [place % len(planes) for place in range(len(evs))]


def test_a_draw_with_fewer_ways_than_evs_differs_in_salt():
    active, backup = draw(STEV32, (0, 1), 2, 16, Random(1))
    assert len(set(active) | set(backup)) == 32
    assert all(ev & 0xFFFF for ev in active)
    few = draw(UDP16, (0,), 1, 16, Random(1))
    assert (len(few.active), len(few.backup)) == (7, 0)  # salts 1 to 7
    assert all(0xC000 <= ev <= 0xFFFF for ev in few.active)


def test_a_number_that_has_no_room_in_a_layout_is_refused():
    with pytest.raises(ValueError, match="hop0 1024 does not fit 10 bits"):
        STEV32.make(0, 1024)
    with pytest.raises(ValueError, match="udp16 has no field hop1; it has plane, hop0, salt"):
        UDP16.shift("hop1")
