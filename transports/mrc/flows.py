"""Heads that passed every check: what makes the second packet of an EV cheap.

Packets in the middle of messages that come on one EV are alike up to their PSN, and so are
SACKs. What the checks of such a head found is a `Flow`; a packet that begins with the same
bytes passes the same checks, as long as nothing about its queue pair has changed. What is left
is the ICRC. Nothing is decided here that the clear way did not decide before.

Here are packets over plain IPv6; any other goes the clear way.
"""

from struct import Struct
from typing import NamedTuple

from transports.mrc.arrivals import NOMINAL
from transports.mrc.classes import CE
from transports.mrc.frames import Frame
from transports.mrc.qp import QueuePair
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol
from wire.ipv6 import IPV6
from wire.mrc.bth import TS
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.reliability import SETH
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, crc32
from wire.udp import UDP

_BTH_AT = IPV6.size + UDP.size
PSN_AT = _BTH_AT + BTH.size - 4  # how far packets of a flow are alike
# Last word of the BTH | METH | TSETH | RETH
REST = Struct("!IHHHHQII")
PAYLOAD_AT = PSN_AT + REST.size
# What a WRITE of a flow has in the upper byte of that word
USUAL = TS >> 24
_SETH_AT = _BTH_AT + BTH.size
_FLOWS = frozenset({MrcOpcode.WRITE_MIDDLE.value, MrcOpcode.SACK.value})
_SACK = MrcOpcode.SACK.value
# Limit: flows kept by a port: one for each EV on which data comes, and for each that we send
# on, per queue pair.
MAX_FLOWS = 16384


class Flow(NamedTuple):
    """What the checks of one head found out."""

    qp: QueuePair
    generation: int  # of the queue pair, at the time
    stop: int  # offset of the ICRC
    crc: int  # the ICRC's state before the PSN
    is_sack: bool
    ev: int
    size: int  # nominal bytes
    udp_dport: int


def may_be_one(packet: ReadBuffer) -> bool:
    """Say whether a packet is of a kind that has flows: a look at three bytes."""
    return (
        len(packet) > PAYLOAD_AT
        and packet[_BTH_AT] in _FLOWS
        and packet[0] >> 4 == 6
        and packet[6] == Protocol.UDP
    )


def flow_of(packet: ReadBuffer, frame: Frame, qp: QueuePair) -> Flow | None:
    """Return the flow of a packet for `qp`, which was admitted; None where there is none.

    Bits that say more than nothing, a mark, a pad, or a size that is not the path MTU: none.
    """
    opcode, bits, _, qp_word, _ = BTH.unpack_from(frame.body)
    stop = _BTH_AT + len(frame.body)
    is_sack = opcode == _SACK
    usual = _SETH_AT + SETH.size if is_sack else PAYLOAD_AT + qp.path_mtu
    if bits or qp_word >> 24 or frame.is_cut or frame.ecn == CE or stop != usual:
        return None
    masked = bytearray(packet[_BTH_AT:PSN_AT])
    masked[4] = 0xFF
    return Flow(
        qp, qp.generation, stop, crc32(masked, frame.crc), is_sack, frame.ev,
        frame.udp_length + NOMINAL, frame.udp_dport,
    )  # fmt: skip


def icrc_is_right(flow: Flow, packet: memoryview) -> bool:
    """Check the ICRC of a packet of a flow."""
    (found,) = ICRC.unpack_from(packet, flow.stop)
    return bool(crc32(packet[PSN_AT : flow.stop], flow.crc) == found)
