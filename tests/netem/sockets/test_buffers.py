"""How many packets a buffer holds."""

from hypothesis import given
from hypothesis import strategies as st

from netem.sockets.buffers import packets_held


@given(st.integers(0, 1 << 26), st.integers(0, 9000), st.integers(0, 9000))
def test_longer_packets_are_never_more(buffer, one, other):
    small, large = sorted((one, other))
    assert packets_held(buffer, large) <= packets_held(buffer, small)


@given(st.integers(0, 1 << 26), st.integers(0, 9000))
def test_they_never_take_less_than_their_bytes(buffer, size):
    assert packets_held(buffer, size) * size <= buffer
