"""Every RoCE packet that a kernel sent us in captures and probes: decoded, encoded, ICRC."""

import pytest

from tests.wire.roce.evidence import (
    captures,
    frames,
    needs_captures,
    probes,
    witness_icrc,
)
from wire.codec import ChecksumError, DecodeError, FieldError
from wire.ipv4 import Ipv4
from wire.roce.frame import RoceFrame
from wire.roce.icrc import ICRC, icrc
from wire.roce.packet import RocePacket, locate, locate_ip

# Stimuli that are wrong on purpose: what refuses them, or what our bytes differ in.
WRONG_ICRC = {"bad icrc", "ip id changed after icrc"}
REFUSED = {"tver 1": "BTH.TVer is 0x1", "reserved opcode 0x15": "BTH.OpCode is 0x15"}
RESERVED_BITS = {"FECN|BECN|resv6 set": 4, "resv7 set": 8}  # byte of the BTH

PROBES = probes()
ORDINARY = [probe for probe in PROBES if probe.name not in WRONG_ICRC | REFUSED.keys()]


@needs_captures
@pytest.mark.parametrize("path", captures(), ids=lambda path: path.stem)
def test_every_frame_of_a_capture_decodes_and_encodes_to_the_same_bytes(path):
    count = 0
    for frame in frames(path):
        at, _, bth, end = locate(frame)
        assert end + 4 == len(frame)
        assert frame[end:] == witness_icrc(frame[at:end])
        assert ICRC.pack(icrc(memoryview(frame)[at:end])) == frame[end:]
        assert RocePacket.unpack(frame[bth:end]).pack() == frame[bth:end]
        assert RoceFrame.unpack(frame).pack() == frame
        count += 1
    assert count > 0


@needs_captures
def test_the_captures_hold_the_packets_they_are_known_for():
    """Guard against a sieve that lets nothing through."""
    assert sum(1 for path in captures() for _ in frames(path)) == 1322
    assert len(PROBES) == 178


@needs_captures
@pytest.mark.parametrize("probe", ORDINARY, ids=lambda probe: probe.name)
def test_a_probe_decodes_and_encodes_to_the_same_bytes(probe):
    packet = probe.packet
    _, _, bth, end = locate_ip(packet)
    assert end + 4 == len(packet)
    assert packet[end:] == witness_icrc(packet[:end]) == ICRC.pack(icrc(packet[:end]))
    again = RocePacket.unpack(packet[bth:end]).pack()
    ignored = RESERVED_BITS.get(probe.name)
    expected = bytearray(packet[bth:end])
    if ignored is not None:
        expected[ignored] &= 0xC0 if ignored == 4 else 0x80
    assert again == expected
    ip = Ipv4.unpack_from(packet)
    header = bytearray(ip.size)
    ip.pack_into(header)
    assert header == packet[: ip.size]


@needs_captures
@pytest.mark.parametrize(
    "probe", [p for p in PROBES if p.name in WRONG_ICRC], ids=lambda probe: probe.name
)
def test_a_probe_with_a_wrong_icrc_is_refused(probe):
    """Conformance W2 and W5, the decoder's half."""
    frame = bytes(12) + b"\x08\x00" + probe.packet
    with pytest.raises(ChecksumError, match="ICRC is"):
        RoceFrame.unpack(frame)


@needs_captures
@pytest.mark.parametrize(
    "probe", [p for p in PROBES if p.name in REFUSED], ids=lambda probe: probe.name
)
def test_a_probe_with_a_forbidden_field_is_refused_by_name(probe):
    """Conformance W15 and W16, the decoder's half."""
    _, _, bth, end = locate_ip(probe.packet)
    with pytest.raises(FieldError) as caught:
        RocePacket.unpack(probe.packet[bth:end])
    assert str(caught.value).startswith(REFUSED[probe.name])


@needs_captures
@pytest.mark.parametrize("path", captures()[:3], ids=lambda path: path.stem)
def test_a_prefix_of_a_captured_frame_is_refused(path):
    frame = next(frames(path))
    for size in range(len(frame)):
        with pytest.raises(DecodeError):
            RoceFrame.unpack(frame[:size])
