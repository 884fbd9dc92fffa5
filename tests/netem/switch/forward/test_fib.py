"""Longest prefix match, against the rule written out."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.switch.forward.fib import Fib
from tests.wire.strategies import moderate

# Few bits that differ, so that prefixes are often inside one another
addresses = st.integers(0, 255).map(lambda low: 0x0A000000 | low * 0x00010101)
prefixes = st.tuples(addresses, st.integers(0, 32)).map(
    lambda pair: IPv4Network(pair, strict=False)
)


@moderate
@given(st.sets(prefixes, max_size=12), addresses)
def test_the_longest_matching_prefix_wins(networks, address):
    fib = Fib(32)
    for network in networks:
        fib.add(int(network.network_address), network.prefixlen, str(network))
    matching = [n for n in networks if IPv4Address(address) in n]
    found = fib.find(address)
    want = max(matching, key=lambda n: n.prefixlen, default=None)
    assert found == (None if want is None else (want.prefixlen, str(want)))
    assert len(fib) == len(networks)


def test_a_prefix_is_there_once():
    fib = Fib(32)
    fib.add(0x0A000000, 8, "one")
    with pytest.raises(ValueError, match="0xa000000/8 is there twice"):
        fib.add(0x0A000000, 8, "two")
    assert fib.get(0x0A000000, 8) == "one"
    assert fib.get(0x0A000000, 9) is None


def test_a_prefix_taken_out_uncovers_the_shorter_one():
    fib = Fib(128)
    fib.add(0xFD << 120, 8, "short")
    fib.add(0xFD01 << 112, 16, "long")
    assert fib.find(0xFD01 << 112) == (16, "long")
    fib.remove(0xFD01 << 112, 16)
    assert fib.find(0xFD01 << 112) == (8, "short")
    with pytest.raises(KeyError):
        fib.remove(0xFD01 << 112, 16)
