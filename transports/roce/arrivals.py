"""A packet that reached a port, taken apart as far as its BTH."""

from typing import NamedTuple

from transports.roce.psn import MASK
from wire.roce.bth import BTH
from wire.roce.opcodes import OPCODES, Opcode

# Bytes of BTH and extension headers, by opcode; 0 where there is no such opcode.
HEADERS_SIZE = [BTH.size + OPCODES[n].headers_size if n in OPCODES else 0 for n in range(256)]
MIDDLES = {
    Opcode.RC_SEND_MIDDLE.value,
    Opcode.RC_WRITE_MIDDLE.value,
    Opcode.RC_READ_RESPONSE_MIDDLE.value,
}
PAD_BITS = 0x30
ACK_REQ = 0x80000000


class Arrival(NamedTuple):
    """The words of a BTH as `BTH.unpack_from` gives them, and where they came from.

    The view is valid until `receive` returns. Everything below the checks of the port may rely
    on a known opcode and on room for its headers and its pad.
    """

    opcode: int
    bits: int  # SE M Pad2 TVer4
    p_key: int
    qp_word: int  # F B resv6 DestQP24
    psn_word: int  # A resv7 PSN24
    view: memoryview
    bth: int  # offset of the BTH
    end: int  # offset of the ICRC

    @property
    def psn(self) -> int:
        return self.psn_word & MASK

    @property
    def ack_req(self) -> bool:
        return self.psn_word >= ACK_REQ

    @property
    def is_solicited(self) -> bool:
        return self.bits >= 0x80

    @property
    def extension(self) -> int:
        """Return the offset of the extension headers."""
        return self.bth + BTH.size

    @property
    def payload(self) -> memoryview:
        """Return the payload without its pad."""
        start = self.bth + HEADERS_SIZE[self.opcode]
        return self.view[start : self.end - (self.bits >> 4 & 3)]

    @property
    def is_padded_right(self) -> bool:
        """Say whether PadCnt makes the packet a multiple of 4 bytes, as it must. 9.2.5."""
        return (self.end - self.bth) % 4 == 0
