"""The codec benchmark measures the same work on all sides."""

import pytest

from netem.bench import codec
from tests.netem.impair.frames import icrc_is_right
from wire.roce.opcodes import Opcode


@pytest.fixture(scope="module")
def scapy():
    """Return how scapy builds and parses: importing it takes most of a second."""
    return codec.scapy_codec()


def test_the_frame_is_right_by_independent_lines():
    assert icrc_is_right(bytes(codec.build()))


def test_header_types_take_apart_what_they_built():
    ethernet, ip, udp, bth, payload = codec.parse(codec.build())
    assert (ethernet.ethertype, ip.next_header, udp.dst_port) == (0x86DD, 17, 4791)
    assert (bth.opcode, bth.dest_qp, bth.psn) == (
        Opcode.RC_WRITE_MIDDLE,
        codec.DEST_QP,
        codec.PSN,
    )
    assert payload == codec.PAYLOAD


def test_the_path_of_traffic_builds_the_same_frame_and_reads_the_same_fields():
    path = codec.Path()
    assert path.build() == codec.build()
    assert path.parse(path.build()) == (codec.DEST_QP, codec.PSN, codec.PAYLOAD)


@pytest.mark.slow
def test_scapy_builds_the_same_frame(scapy):
    build, parse = scapy
    assert build() == codec.build()
    assert bytes(parse(build())) == codec.build()


@pytest.mark.slow
def test_every_figure_stands_beside_scapy():
    figures = list(codec.codec(rounds=1))
    assert [figure.name for figure in figures] == ["codec-rc-1024", "codec-rc-1024-types"]
    assert all(figure.ceiling.name.startswith("scapy ") for figure in figures)
    assert all(figure.unit == "packets/s" for figure in figures)
    assert all(figure.value > 0 for figure in figures)
