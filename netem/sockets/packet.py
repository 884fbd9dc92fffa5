"""Whole frames of one interface, as they are on the wire. packet(7).

The kernel takes the outer 802.1Q or 802.1ad tag out of every frame that it receives, before any
socket sees it and whatever the offload settings, and keeps it beside the frame. Only `recvmsg`
tells, at three times the price of `recv_into`. So a port has two sockets, each with a filter in
the kernel: one for frames without a tag, read the fast way, one for frames with a tag, which is
put back here. Order is kept within each kind, not between them.
"""

import errno
import fcntl
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from ctypes import addressof, create_string_buffer
from struct import Struct
from typing import Self

from netem.kernel.namespaces import control_socket
from netem.sockets.buffers import ask_for_buffers, packets_held, receive_buffer
from wire.codec import ReadBuffer

BATCH = 64  # frames per turn: a bound, so that timers and control stay alive

_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26
_ETH_P_ALL = 0x0003
_ETH_P_8021Q = 0x8100
_SIOCGIFMTU = 0x8921

_STATISTICS = Struct("=II")  # packets | drops; reading resets both
_AUXDATA = Struct("=IIIHHHH")  # status | length | captured | mac | net | TCI | TPID
_TP_STATUS_VLAN_VALID = 0x10
_TP_STATUS_VLAN_TPID_VALID = 0x40
_AUX_SPACE = socket.CMSG_SPACE(_AUXDATA.size)
_TAG = Struct("!HH")  # TPID | TCI
_IFREQ_MTU = Struct("16si20x")

# A classic filter is a list of: opcode | jump if true | jump if false | operand.
_BPF_STEP = Struct("=HBBI")
_BPF_LOAD = 0x28  # ld half word
_BPF_JUMP_IF_EQUAL = 0x15
_BPF_RETURN = 0x06
_VLAN_TAG_PRESENT = 0xFFFF_F000 + 48  # SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT
_WHOLE_FRAME = 0xFFFF_FFFF
_FPROG = Struct("@HP")  # steps | address of the first

_DOWN = frozenset({errno.ENETDOWN, errno.ENOBUFS, errno.ENODEV, errno.ENXIO})
_ROOM = 14 + 4 + 4 + 32  # Ethernet, two tags, and some, so that what does not fit shows
_BUFFER = 8 << 20


class PacketSocket:
    """Sends and receives the frames of one interface of the present network namespace.

    What this host itself sends on the interface is never received. `fileno` is readable when
    there is a frame.
    """

    def __init__(self, interface: str, *, buffer: int = _BUFFER) -> None:
        """Raise OSError where there is no such interface or no right to open it."""
        self.interface = interface
        self.send_drops = 0  # frames that the kernel did not take: no room, or interface down
        self.oversized = 0  # frames longer than the MTU allows, received or offered
        self._dropped = 0
        mtu = _mtu(interface)
        self._plain = _bound(interface, buffer, tagged=False)
        self._tagged = _bound(interface, buffer, tagged=True)
        self._epoll = select.epoll()
        self._epoll.register(self._plain, select.EPOLLIN)
        self._epoll.register(self._tagged, select.EPOLLIN)
        self._plain_fd = self._plain.fileno()
        self._slots = _slots(mtu + _ROOM)
        self._send = self._plain.send

    def fileno(self) -> int:
        return self._epoll.fileno()

    def receive(self, limit: int = BATCH) -> Sequence[memoryview]:
        """Return up to `limit` (at most 64) waiting frames, from Ethernet up, none if none.

        The views are valid until the next call.
        """
        frames: list[memoryview] = []
        slots = iter(self._slots[:limit])
        for fd, _ in self._epoll.poll(0):
            drain = self._drain_plain if fd == self._plain_fd else self._drain_tagged
            try:
                drain(slots, frames.append)
            except BlockingIOError:
                pass
            except OSError as error:  # told once when the interface goes down
                if not _is_network_down(error):
                    raise
        return frames

    def send(self, frame: ReadBuffer) -> bool:
        """Send one frame, tags included. False, and counted, where the kernel refuses."""
        try:
            self._send(frame)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                self.oversized += 1
            elif isinstance(error, BlockingIOError) or _is_network_down(error):
                self.send_drops += 1
            else:
                raise
            return False
        return True

    @property
    def receive_drops(self) -> int:
        """Frames lost since the start because our buffer was full."""
        for sock in (self._plain, self._tagged):
            raw = sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
            self._dropped += _STATISTICS.unpack(raw)[1]
        return self._dropped

    def frames_held(self, frame_size: int) -> int:
        """Return how many frames of a size surely wait here without loss."""
        return packets_held(receive_buffer(self._plain), frame_size)

    def close(self) -> None:
        self._epoll.close()
        self._plain.close()
        self._tagged.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drain_plain(
        self, slots: Iterator[memoryview], keep: Callable[[memoryview], None]
    ) -> None:
        recv_into = self._plain.recv_into
        for slot in slots:
            # With MSG_TRUNC the answer is the frame's length even where that is not all here.
            size = recv_into(slot, 0, socket.MSG_TRUNC)
            if size <= len(slot):
                keep(slot[:size])
            else:
                self.oversized += 1

    def _drain_tagged(
        self, slots: Iterator[memoryview], keep: Callable[[memoryview], None]
    ) -> None:
        for slot in slots:
            behind = slot[4:]
            size, aux, _, _ = self._tagged.recvmsg_into([behind], _AUX_SPACE, socket.MSG_TRUNC)
            if size > len(behind):
                self.oversized += 1
                continue
            slot[:12] = slot[4:16]
            _TAG.pack_into(slot, 12, *_tag(aux))
            keep(slot[: size + 4])


def _is_network_down(error: OSError) -> bool:
    return error.errno in _DOWN


def _tag(aux: Sequence[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Return TPID and TCI from the control message; the filter saw to it that there is one."""
    for level, kind, data in aux:
        if level == _SOL_PACKET and kind == _PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(data)
            if status & _TP_STATUS_VLAN_VALID:
                known = status & _TP_STATUS_VLAN_TPID_VALID
                return tpid if known else _ETH_P_8021Q, tci
    raise AssertionError("a tagged frame came without its tag")


def _bound(interface: str, buffer: int, *, tagged: bool) -> socket.socket:
    # Protocol 0 receives nothing: the socket stays deaf until it is bound, filter in place.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        ask_for_buffers(sock, buffer)
        _attach_filter(sock, tagged=tagged)
        if tagged:
            sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        sock.bind((interface, _ETH_P_ALL))
    except BaseException:
        sock.close()
        raise
    return sock


def _attach_filter(sock: socket.socket, *, tagged: bool) -> None:
    """Let through only frames with, or only frames without, a tag set aside by the kernel."""
    if_zero, if_not = (0, _WHOLE_FRAME) if tagged else (_WHOLE_FRAME, 0)
    steps = b"".join(
        (
            _BPF_STEP.pack(_BPF_LOAD, 0, 0, _VLAN_TAG_PRESENT),
            _BPF_STEP.pack(_BPF_JUMP_IF_EQUAL, 0, 1, 0),
            _BPF_STEP.pack(_BPF_RETURN, 0, 0, if_zero),
            _BPF_STEP.pack(_BPF_RETURN, 0, 0, if_not),
        )
    )
    program = create_string_buffer(steps, len(steps))
    head = _FPROG.pack(len(steps) // _BPF_STEP.size, addressof(program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)


def _mtu(interface: str) -> int:
    with control_socket() as sock:
        request = _IFREQ_MTU.pack(interface.encode(), 0)
        answer = fcntl.ioctl(sock, _SIOCGIFMTU, request)
    mtu: int = _IFREQ_MTU.unpack(answer)[1]
    return mtu


def _slots(size: int) -> list[memoryview]:
    slab = memoryview(bytearray(BATCH * size))
    return [slab[i * size : (i + 1) * size] for i in range(BATCH)]
