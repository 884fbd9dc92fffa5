"""The fast way to a packet block gives the bytes of the plain way."""

from hypothesis import given
from hypothesis import strategies as st

from netem.capture.blocks import packet_block, plain_packet
from wire.pcapng import enhanced_packet

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(U32, U64, st.binary(max_size=70), U32, U64)
def test_a_plain_packet_is_the_enhanced_packet_of_the_codec(
    interface, ts_ns, frame, original, packet
):
    assert plain_packet(interface, ts_ns, frame, original, packet) == enhanced_packet(
        interface, ts_ns, frame, original_length=original, outbound=True, packet_id=packet
    )


@given(st.sampled_from(["", "delayed 3us"]), st.sampled_from([None, 7]))
def test_what_is_not_plain_goes_the_plain_way(comment, packet):
    assert packet_block(1, 2, b"frame", 5, comment=comment, packet=packet) == enhanced_packet(
        1, 2, b"frame", original_length=5, comment=comment, outbound=True, packet_id=packet
    )
