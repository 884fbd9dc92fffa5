"""What one interface sends, read from memory that the kernel shares with us. packet(7).

A plain packet socket holds a few hundred frames before it loses some, since its buffer counts
against `net.core.rmem_max`; a ring (TPACKET_V2) is as large as we ask. The kernel fills one
slot per frame, with its own time stamp, and we give the slot back when it is read. Version 2
and not 3: there a timer runs for every ring, all the time, also in a lab that is idle.

Only outgoing frames are let in: what an interface receives is recorded where it was sent.
"""

import ctypes
import fcntl
import mmap
import socket
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, Self

from netem.kernel.namespaces import control_socket
from wire.codec import ReadBuffer

# status | length | captured | mac offset | net offset | s | ns | TCI | TPID
_SLOT = Struct("=IIIHHIIHH")
_STATUS = Struct("=I")
_REQUEST = Struct("=IIII")  # block size | blocks | slot size | slots
_STATISTICS = Struct("=II")  # packets | drops; reading resets both
_TAG = Struct("!HH")  # TPID | TCI
_IFREQ_MTU = Struct("16si20x")

_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_TPACKET_V2 = 1
_SO_ATTACH_FILTER = 26
_SIOCGIFMTU = 0x8921
_ETH_P_ALL = 0x0003
_ETH_P_8021Q = 0x8100

_TO_KERNEL = 0
_TO_USER = 0x01
_VLAN_VALID = 0x10
_VLAN_TPID_VALID = 0x40

# Classic filter, opcode | jump if true | jump if false | operand: outgoing whole, others not.
_BPF_STEP = Struct("=HBBI")
_OUTGOING_ONLY = (
    (0x28, 0, 0, 0xFFFF_F004),  # ld the packet type (SKF_AD_OFF + SKF_AD_PKTTYPE)
    (0x15, 0, 1, 4),  # PACKET_OUTGOING?
    (0x06, 0, 0, 0xFFFF_FFFF),  # all of it
    (0x06, 0, 0, 0),  # nothing
)
_FPROG = Struct("@HP")  # steps | address of the first

_BLOCK = 128 << 10  # holds the largest slot; the kernel wants whole pages in a row
_BESIDE_FRAME = 96  # the slot's header, an address and alignment
_BESIDE_MTU = 14 + 2 * _TAG.size
_SUPERFRAME = 65_536 + _BESIDE_MTU
_LEAST_SLOTS = 64


class Seen(NamedTuple):
    """One frame that left; the view is valid until the next is asked for."""

    realtime: int  # CLOCK_REALTIME nanoseconds, by the kernel
    frame: ReadBuffer
    original: int  # bytes on the wire; more than the frame has where a slot was too small


class OutgoingRing:
    """A packet socket with a ring, on one interface of the present network namespace."""

    def __init__(self, interface: str, size: int, *, superframes: bool = False) -> None:
        """Take about `size` bytes of memory. Raise OSError where the kernel refuses.

        With `superframes`, slots hold what segmentation offload sends in one piece.
        """
        self.dropped = 0
        needed = _SUPERFRAME if superframes else _mtu(interface) + _BESIDE_MTU
        slot = (needed + _BESIDE_FRAME + 15) & ~15
        per_block = _BLOCK // slot
        blocks = max(size // _BLOCK, -(-_LEAST_SLOTS // per_block))
        # Protocol 0 receives nothing: deaf until it is bound, ring and filter in place.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        try:
            option = self._socket.setsockopt
            option(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            request = _REQUEST.pack(_BLOCK, blocks, slot, per_block * blocks)
            option(_SOL_PACKET, _PACKET_RX_RING, request)
            self._memory = mmap.mmap(self._socket.fileno(), _BLOCK * blocks)
            self._attach_filter()
            self._socket.bind((interface, _ETH_P_ALL))
        except BaseException:
            self._socket.close()
            raise
        self._view = memoryview(self._memory)
        self._slots = [
            block * _BLOCK + n * slot for block in range(blocks) for n in range(per_block)
        ]
        self._next = 0

    def fileno(self) -> int:
        """Return the descriptor that is readable while frames wait."""
        return self._socket.fileno()

    def read(self, limit: int) -> Iterator[Seen]:
        """Yield up to `limit` frames that have left, oldest first; none if none wait."""
        view, slots = self._view, self._slots
        for _ in range(limit):
            at = slots[self._next]
            status, length, captured, mac, _, s, ns, tci, tpid = _SLOT.unpack_from(view, at)
            if not status & _TO_USER:
                return
            frame: ReadBuffer = view[at + mac : at + mac + captured]
            if status & _VLAN_VALID:  # the kernel carries the tag beside the frame
                tag = _TAG.pack(tpid if status & _VLAN_TPID_VALID else _ETH_P_8021Q, tci)
                frame = b"".join((frame[:12], tag, frame[12:]))
                length += _TAG.size
            yield Seen(s * 1_000_000_000 + ns, frame, length)
            _STATUS.pack_into(view, at, _TO_KERNEL)
            self._next = (self._next + 1) % len(slots)

    def drops(self) -> int:
        """Return how many frames so far found no free slot."""
        raw = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        self.dropped += _STATISTICS.unpack(raw)[1]
        return self.dropped

    def close(self) -> None:
        """Let go of the ring; views that `read` gave are no longer valid."""
        self._view.release()
        self._memory.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attach_filter(self) -> None:
        code = b"".join(_BPF_STEP.pack(*step) for step in _OUTGOING_ONLY)
        memory = ctypes.create_string_buffer(code, len(code))
        program = _FPROG.pack(len(_OUTGOING_ONLY), ctypes.addressof(memory))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _mtu(interface: str) -> int:
    with control_socket() as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFMTU, _IFREQ_MTU.pack(interface.encode(), 0))
    mtu: int = _IFREQ_MTU.unpack(answer)[1]
    return mtu
