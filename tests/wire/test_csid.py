"""Containers of compressed SIDs: packing, shifting, the view at each hop."""

from ipaddress import IPv6Address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import moderate, octets
from wire.csid import (
    F3216,
    CsidStructure,
    check_structure,
    compress,
    csids,
    is_last,
    last_csid,
    pack_container,
    shift,
    views,
)


def address(text):
    return IPv6Address(text).packed


BLOCK = address("fcbb:bb00::")

# Source: destination addresses that Linux 6.18 sent on the links of a path of uN hops, and the
# example of the MRC address plan.
PATHS = [
    ["fcbb:bb00:101:201:b01::", "fcbb:bb00:201:b01::", "fcbb:bb00:b01::"],
    ["fcbb:bb00:3101:3205:3102:3807::", "fcbb:bb00:3205:3102:3807::",
     "fcbb:bb00:3102:3807::", "fcbb:bb00:3807::"],
    ["fcbb:bb00:201:101:201:101:201:b01", "fcbb:bb00:101:201:101:201:b01:0",
     "fcbb:bb00:201:101:201:b01::", "fcbb:bb00:101:201:b01::", "fcbb:bb00:201:b01::",
     "fcbb:bb00:b01::"],
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=["three", "MRC", "six"])
def test_s11_each_hop_sees_one_csid_less(path):
    """Field report S11: no SID is missing; the capture is behind the hop that used it up."""
    addresses = tuple(map(address, path))
    assert views(addresses[0]) == addresses
    assert last_csid(addresses[0]) == addresses[-1]
    for before, after in pairwise(addresses):
        assert shift(before) == after
        assert not is_last(before)
    assert is_last(addresses[-1])


def test_a_container_holds_six_and_no_more():
    six = [0x101, 0x201, 0x102, 0x202, 0x103, 0xB01]
    container = pack_container(BLOCK, six)
    assert container == address("fcbb:bb00:101:201:102:202:103:b01")
    assert csids(container) == tuple(six)
    with pytest.raises(ValueError, match="7 CSIDs, legal is 1 to 6"):
        pack_container(BLOCK, [*six, 1])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [([], "0 CSIDs"), ([0], "CSID is 0x0"), ([1 << 16], "CSID is 0x10000"), ([1, 0], "0x0")],
)
def test_what_is_no_csid_is_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        pack_container(BLOCK, wrong)


def test_of_the_block_only_its_own_bits_are_used():
    assert pack_container(address("fcbb:bb00:ffff::ffff"), [1]) == address("fcbb:bb00:1::")


@pytest.mark.parametrize(
    ("widths", "is_legal"),
    [((32, 16), True), ((16, 16), True), ((48, 16), True), ((32, 32), True), ((64, 64), True),
     ((120, 8), True), ((33, 12), False), ((32, 0), False), ((64, 72), False)],
)  # fmt: skip
def test_the_widths_are_those_that_linux_takes(widths, is_legal):
    if is_legal:
        check_structure(CsidStructure(*widths))
    else:
        with pytest.raises(ValueError, match="structure is"):
            check_structure(CsidStructure(*widths))


class TestCompression:
    """RFC 9800, section 6.2."""

    @pytest.mark.parametrize(
        ("path", "containers"),
        [
            (["fcbb:bb00:101::", "fcbb:bb00:201::", "fcbb:bb00:b01::"],
             ["fcbb:bb00:101:201:b01::"]),
            ([f"fcbb:bb00:{n:x}::" for n in range(1, 8)],
             ["fcbb:bb00:1:2:3:4:5:6", "fcbb:bb00:7::"]),
            (["fcbb:bb00:101::", "fcbb:bb01:201::"], ["fcbb:bb00:101::", "fcbb:bb01:201::"]),
            (["fcbb:bb00:101:f001::", "fcbb:bb00:b01::"], ["fcbb:bb00:101:f001:b01::"]),
            (["fcbb:bb00:101::", "fc00:b::d6"], ["fcbb:bb00:101::", "fc00:b::d6"]),
            (["fc00:b::d6", "fcbb:bb00:101::"], ["fc00:b::d6", "fcbb:bb00:101::"]),
            (["2001:db8:1::5", "2001:db8:2::"], ["2001:db8:1::5", "2001:db8:2::"]),
            (["fcbb:bb00:1:2:3:4:5::", "fcbb:bb00:6:7::"],
             ["fcbb:bb00:1:2:3:4:5:0", "fcbb:bb00:6:7::"]),
            ([], []),
        ],
        ids=["one", "seven make two", "another block", "composite", "SID behind",
             "SID in front", "SID of the block with an argument", "composite stays whole",
             "nothing"],
    )  # fmt: skip
    def test_a_path_of_sids_goes_into_containers(self, path, containers):
        got = compress(map(address, path))
        assert got == tuple(map(address, containers))


structures = st.sampled_from(
    [F3216, CsidStructure(16, 16), CsidStructure(48, 16), CsidStructure(32, 32)]
)


@moderate
@given(octets(16), st.data(), structures)
def test_containers_give_back_what_was_put_in(block, data, structure):
    size = structure.node_function
    some = data.draw(
        st.lists(st.integers(1, (1 << size) - 1), min_size=1, max_size=structure.capacity)
    )
    container = pack_container(block, some, structure)
    assert csids(container, structure) == tuple(some)
    assert len(views(container, structure)) == len(some)
    singles = [pack_container(block, [csid], structure) for csid in some]
    assert compress(singles, structure) == (container,)


@moderate
@given(octets(16), structures)
def test_a_shift_loses_one_csid_keeps_the_block_and_ends_in_zeros(container, structure):
    block, size = structure.block // 8, structure.node_function // 8
    shifted = shift(container, structure)
    assert shifted == container[:block] + container[block + size :] + bytes(size)
