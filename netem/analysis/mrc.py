"""MRC packets in a line: `WRITE_MIDDLE psn 0x13 4096 B on p1`, `SACK to 0x12, missing 0x14`.

What is derived is shown and not what is on the wire: absolute PSNs of what a SACK misses, the
plane of an entropy value (of the format stev32, over IPv4 udp16).
"""

from typing import NamedTuple

from netem.impair.faults import MRC_NAMES
from transports.mrc.profiles import STEV32, UDP16
from wire.codec import DecodeError
from wire.mrc import entropy
from wire.mrc.endpoint import EndpointOp
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.mrc.options import PORTS
from wire.mrc.packet import MrcPacket, TrimmedWrite
from wire.mrc.reliability import BITMAP_BITS, NackReason, Seth
from wire.roce.bth import BTH
from wire.roce.eths import AethKind, NakCode
from wire.roce.icrc import ICRC, icrc
from wire.udp import Udp

_MASK = 0xFFFFFF
_SHOWN = 4  # PSNs that a SACK misses
_EDGES = frozenset(
    {
        MrcOpcode.WRITE_FIRST,
        MrcOpcode.WRITE_LAST,
        MrcOpcode.WRITE_LAST_IMM,
        MrcOpcode.WRITE_ONLY,
        MrcOpcode.WRITE_ONLY_IMM,
        MrcOpcode.ACKNOWLEDGE,
    }
)


class Mrc(NamedTuple):
    """One MRC packet."""

    packet: MrcPacket | TrimmedWrite
    name: str
    text: str
    psn: int
    dest_qp: int
    is_edge: bool  # of a message, or the answer to one
    is_refusal: bool  # a NACK or a NAK
    is_again: bool


def is_mrc(frame: memoryview, offset: int) -> bool:
    """Say whether a UDP datagram at `offset` carries MRC: by its port and its opcode."""
    at = offset + 8
    if len(frame) < at + BTH.size:
        return False
    port = frame[offset + 2] << 8 | frame[offset + 3]
    return port in PORTS and frame[at] in MRC_NAMES


def read_mrc(frame: memoryview, ip: int, offset: int) -> Mrc:
    """Return the packet whose IP header and UDP header are at `ip` and `offset`.

    Raise DecodeError for headers that end too early.
    """
    udp = Udp.unpack_from(frame, offset)
    at = offset + udp.size
    is_v6 = frame[ip] >> 4 == 6
    label = int.from_bytes(frame[ip + 1 : ip + 4], "big") & 0xFFFFF if is_v6 else 0
    plane = (
        STEV32.plane_of(entropy.join(label, udp.src_port))
        if is_v6
        else UDP16.plane_of(udp.src_port)
    )
    if offset + udp.length > len(frame):
        return _trimmed(TrimmedWrite.unpack(frame[at:]), plane)
    stop = offset + udp.length - ICRC.size
    packet = MrcPacket.unpack(frame[at:stop])
    (there,) = ICRC.unpack_from(frame, stop)
    try:
        is_right = there == icrc(frame[ip:stop])
    except DecodeError:
        is_right = False
    return _whole(packet, plane, is_right=is_right)


def _trimmed(packet: TrimmedWrite, plane: int) -> Mrc:
    bth = packet.bth
    name = MRC_NAMES[bth.opcode]
    text = f"{name} psn {bth.psn:#x} trimmed on p{plane}"
    return Mrc(packet, name, text, bth.psn, bth.dest_qp, bth.opcode in _EDGES, False, bth.rtx)


def _whole(packet: MrcPacket, plane: int, *, is_right: bool) -> Mrc:
    bth = packet.bth
    name = MRC_NAMES[bth.opcode]
    is_refusal = packet.neth is not None
    if packet.aeth is not None:
        name = "NAK" if packet.aeth.kind is AethKind.NAK else "ACK"
        is_refusal = name == "NAK"
    words = _words(packet, name)
    words += ["on", f"p{plane}"]
    if not is_right:
        words.append("bad ICRC")
    is_again = bth.opcode in WRITES and bth.rtx
    is_edge = bth.opcode in _EDGES
    return Mrc(
        packet, name, " ".join(words), bth.psn, bth.dest_qp, is_edge, is_refusal, is_again
    )


def _words(packet: MrcPacket, name: str) -> list[str]:
    bth = packet.bth
    words = [name, f"psn {bth.psn:#x}", f"{len(packet.payload)} B"]
    if packet.seth is not None:
        words = _sack_words(packet.seth)
    elif packet.neth is not None:
        reason = packet.neth.reason
        known = reason in NackReason.__members__.values()
        words = ["NACK", NackReason(reason).name if known else hex(reason)]
        words.append(f"psn {packet.neth.nack_psn:#x}")
    elif packet.aeth is not None:
        code = packet.aeth.code
        known = code in NakCode.__members__.values()
        why = [NakCode(code).name if known else hex(code)] if name == "NAK" else []
        words = [name, *why, f"msn {packet.aeth.msn:#x}"]
    elif packet.peth is not None:
        words = [name, f"{packet.peth.probe_id:#x}"]
    elif packet.erth is not None and packet.erth.op == EndpointOp.PORT_STATUS_UPDATE:
        words = ["PORT_STATUS", f"{packet.erth.port_status_mask:#b}"]
    elif packet.erth is not None:
        words = ["EV_PROBE", f"{bth.psn:#x}"]
    elif packet.eeth is not None:
        words = ["EV_PROBE", "answer", f"{bth.psn:#x}"]
    return words


def _sack_words(seth: Seth) -> list[str]:
    words = ["SACK", f"to {seth.cack_psn:#x}"]
    if seth.probe:
        words.append(f"for probe {seth.probe_id:#x}")
    missing = missing_psns(seth)
    if missing:
        shown = " ".join(f"{psn:#x}" for psn in missing[:_SHOWN])
        more = len(missing) - _SHOWN
        words.append(f"missing {shown}" + (f" and {more} more" if more > 0 else ""))
    if seth.verdict:
        words.append(f"m {seth.verdict}")
    return words


def missing_psns(seth: Seth) -> list[int]:
    """Return the PSNs that a SACK shows as not there: below the highest bit that is set."""
    if not seth.sack_bitmap:
        return []
    base = seth.cack_psn + seth.sack_offset
    highest = seth.sack_bitmap.bit_length()
    missing = [
        base + bit
        for bit in range(min(highest, BITMAP_BITS))
        if not seth.sack_bitmap >> bit & 1 and seth.sack_offset + bit > 0
    ]
    return [psn & _MASK for psn in missing]
