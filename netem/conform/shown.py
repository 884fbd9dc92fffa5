"""Memory that a server of rdma_cm shows to the suite, in the private data of its REP.

CM itself names no memory. So that WRITEs, READs and atomics can be judged by it all the same, a
server may begin the private data of its REP with these 24 bytes, big endian:

     0   4 bytes   the letters RMEM
     4   4 bytes   R_Key
     8   8 bytes   virtual address
    16   8 bytes   length

What a server need not know: private data without the letters is anybody's own.
"""

from struct import Struct
from typing import NamedTuple, Self

NOTE = Struct("!4sIQQ")
_LETTERS = b"RMEM"


class Shown(NamedTuple):
    """One region that a peer may write, read, and use atomics on."""

    va: int
    key: int
    length: int  # bytes

    @classmethod
    def of(cls, private_data: bytes) -> Self | None:
        """Return what private data shows; None where it shows nothing. Total."""
        if len(private_data) < NOTE.size:
            return None
        letters, key, va, length = NOTE.unpack_from(private_data)
        return cls(va, key, length) if letters == _LETTERS else None

    def pack(self) -> bytes:
        """Return the private data that shows this region."""
        return NOTE.pack(_LETTERS, self.key, self.va, self.length)
