"""Priority-based flow control: a MAC control frame. IEEE 802.1Qbb; 802.3, annex 31D.

The frame is untagged, is padded to 60 bytes, and never passes a bridge.
"""

from struct import Struct
from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, TruncatedError, WriteBuffer, check_uint
from wire.ethernet import ETHERNET

PFC = Struct("!HH8H")  # Opcode | Class Enable Vector | Time 0 to 7

DESTINATION = b"\x01\x80\xc2\x00\x00\x01"
ETHERTYPE = 0x8808  # of all MAC control frames
OPCODE = 0x0101  # 0x0001 is the PAUSE of annex 31B, which stops a whole port
QUANTUM_BITS = 512  # a time of 1 is the time that so many bits take on the port
MIN_FRAME = 60  # bytes without the frame check sequence

_CLASSES = 8


class Pfc(NamedTuple):
    """From the opcode to the last time; what is behind is padding.

    Bit n of `enabled` says that `times[n]`, in quanta, is meant: pause so long, or with 0
    resume. Times that are not enabled mean nothing and are kept as they are. The high byte of
    the vector is reserved.
    """

    enabled: int
    times: tuple[int, int, int, int, int, int, int, int]

    @property
    def size(self) -> int:
        return PFC.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for another MAC control opcode."""
        if len(buf) - offset < PFC.size:
            raise TruncatedError("PFC", PFC.size, len(buf) - offset)
        opcode, vector, *_ = fields = PFC.unpack_from(buf, offset)
        if opcode != OPCODE:
            raise FieldError("PFC.Opcode", opcode, f"{OPCODE:#x}")
        return cls(vector & 0xFF, fields[2:])

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("enabled", self.enabled, _CLASSES)
        for time in self.times:
            check_uint("time", time, 16)
        PFC.pack_into(buf, offset, OPCODE, self.enabled, *self.times)

    @classmethod
    def of(cls, quanta: dict[int, int]) -> Self:
        """Return what tells the classes of `quanta` to pause so long each."""
        times = tuple(quanta.get(priority, 0) for priority in range(_CLASSES))
        a, b, c, d, e, f, g, h = times
        return cls(sum(1 << priority for priority in quanta), (a, b, c, d, e, f, g, h))

    @property
    def quanta(self) -> dict[int, int]:
        """What the enabled classes are told."""
        return {
            priority: time
            for priority, time in enumerate(self.times)
            if self.enabled >> priority & 1
        }


def pfc_frame(src: bytes, pfc: Pfc) -> bytes:
    """Return the whole frame that the port with the MAC address `src` sends."""
    frame = bytearray(MIN_FRAME)
    ETHERNET.pack_into(frame, 0, DESTINATION, src, ETHERTYPE)
    pfc.pack_into(frame, ETHERNET.size)
    return bytes(frame)
