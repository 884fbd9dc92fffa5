"""What perftest tells about a queue pair: as text over TCP, as a structure over RDMA.

perftest 4.5 (tag 4.5-0.17), port 18515.
"""

from struct import Struct
from typing import NamedTuple, Self

from transports.roce.exchange.digits import unpack_fields
from wire.codec import DecodeError, ReadBuffer, TruncatedError, check_size, check_uint

# LID | Out Reads | QPN | PSN | R_Key | pad | Virtual Address | GID | SRQN | GID index
KEYS = Struct("!IIIII4xQ16sII")
TEXT_SIZE = 108

_WIDTHS = (4, 4, 6, 6, 8, 16, *[2] * 16, 8)  # digits of each field of the text
_BITS = {"lid": 16, "out_reads": 16, "qpn": 24, "psn": 24, "r_key": 32, "va": 64, "srqn": 32}


class Keys(NamedTuple):
    """A queue pair, and the memory that may be used through it."""

    qpn: int
    psn: int
    gid: bytes
    out_reads: int = 1  # READs and atomics that its owner takes at once
    r_key: int = 0
    va: int = 0
    srqn: int = 0
    lid: int = 0
    gid_index: int = 0  # only in the structure

    def pack_text(self) -> bytes:
        """Return the 108 bytes of the text, NUL last."""
        self.check()
        head = (
            f"{self.lid:04x}:{self.out_reads:04x}:{self.qpn:06x}:{self.psn:06x}:"
            f"{self.r_key:08x}:{self.va:016x}:"
        )
        return f"{head}{self.gid.hex(':')}:{self.srqn:08x}:\0".encode()

    @classmethod
    def unpack_text(cls, text: ReadBuffer) -> Self:
        """Raise DecodeError for what is no such text."""
        if len(text) < TEXT_SIZE:
            raise TruncatedError("keys", TEXT_SIZE, len(text))
        # A colon more than other texts have: it is cut off, and the NUL is put in its place.
        if text[TEXT_SIZE - 2] != ord(":") or text[TEXT_SIZE - 1]:
            raise DecodeError(f"{bytes(text[:TEXT_SIZE])!r} does not end as keys do")
        fields = unpack_fields(bytes(text[: TEXT_SIZE - 2]) + b"\0", _WIDTHS, "keys")
        lid, out_reads, qpn, psn, r_key, va, *gid, srqn = fields
        return cls(qpn, psn, bytes(gid), out_reads, r_key, va, srqn, lid)

    def pack(self) -> bytes:
        """Return the 56 bytes of the structure."""
        self.check()
        check_uint("gid_index", self.gid_index, 32)
        return KEYS.pack(
            self.lid, self.out_reads, self.qpn, self.psn, self.r_key, self.va, self.gid,
            self.srqn, self.gid_index,
        )  # fmt: skip

    @classmethod
    def unpack(cls, data: ReadBuffer) -> Self:
        """Raise DecodeError for what is too short, or numbers that no queue pair has."""
        if len(data) < KEYS.size:
            raise TruncatedError("keys", KEYS.size, len(data))
        lid, out_reads, qpn, psn, r_key, va, gid, srqn, gid_index = KEYS.unpack_from(data)
        keys = cls(qpn, psn, gid, out_reads, r_key, va, srqn, lid, gid_index)
        try:
            keys.check()
        except ValueError as wrong:
            raise DecodeError(f"keys: {wrong}") from None
        return keys

    def check(self) -> None:
        """Raise ValueError for a field that does not fit."""
        for name, bits in _BITS.items():
            check_uint(name, getattr(self, name), bits)
        check_size("gid", self.gid, 16)


NO_KEYS = bytes(KEYS.size)  # of the barriers before anything is known
