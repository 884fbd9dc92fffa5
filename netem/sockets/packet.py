"""Whole frames of one interface, as they are on the wire. packet(7).

The kernel takes the outer 802.1Q or 802.1ad tag out of every frame that it receives, before any
socket sees it and whatever the offload settings, and keeps it beside the frame. Only `recvmsg`
tells it, at three times the price of `recv_into`. So a port has two sockets with a filter each:

* the plain one gets frames without a tag whole, and of a frame with a tag the first byte, which
  no real frame consists of: a note that the frame waits next door, in its place in the order;
* the tagged one gets only frames with a tag, read by `recvmsg`, and the tag is put back.
"""

import errno
import socket
from array import array
from collections.abc import Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Self

from netem.kernel.links import mtu
from netem.kernel.namespaces import control_socket
from netem.sockets.buffers import ask_for_buffers, packets_held, receive_buffer
from wire.codec import ReadBuffer

_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26
_ETH_P_ALL = 0x0003
_ETH_P_8021Q = 0x8100

_STATISTICS = Struct("=II")  # packets | drops; reading resets both
_AUXDATA = Struct("=IIIHHHH")  # status | length | captured | mac | net | TCI | TPID
_TP_STATUS_VLAN_VALID = 0x10
_TP_STATUS_VLAN_TPID_VALID = 0x40
_AUX_SPACE = socket.CMSG_SPACE(_AUXDATA.size)
_TAG = Struct("!HH")  # TPID | TCI

# A classic filter is a list of: opcode | jump if true | jump if false | operand.
_BPF_STEP = Struct("=HBBI")
_BPF_LOAD = 0x28  # ld half word
_BPF_JUMP_IF_EQUAL = 0x15
_BPF_RETURN = 0x06  # how many bytes of the frame the socket gets; 0: it gets nothing
_VLAN_TAG_PRESENT = 0xFFFF_F000 + 48  # SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT
_WHOLE = 0xFFFF_FFFF
_NOTE = 1
_FPROG = Struct("@HP")  # steps | address of the first

BATCH = 64  # frames per turn: a bound, so that timers and control stay alive
_ROOM = 14 + 2 * _TAG.size  # what a frame has beside the MTU
_BUFFER = 8 << 20
_DOWN = frozenset({errno.ENETDOWN, errno.ENOBUFS, errno.ENODEV, errno.ENXIO})


class PacketSocket:
    """Sends and receives the frames of one interface of the present network namespace.

    Never blocks. What this host itself sends on the interface is never received.
    """

    def __init__(self, interface: str, *, buffer: int = _BUFFER) -> None:
        """Raise OSError where there is no such interface or no right to open it."""
        self.interface = interface
        self.send_drops = 0  # the kernel had no room, or the link was down
        self.oversized = 0  # longer than the MTU allows, offered to `send`
        self._dropped = 0
        with control_socket() as control:
            size = mtu(control, interface) + _ROOM
        # Pages of its own, which are no memory before a frame is in them.
        slab = memoryview(mmap(-1, BATCH * size, MAP_PRIVATE | MAP_ANONYMOUS))
        self._slots = [slab[at : at + size] for at in range(0, len(slab), size)]
        self._plain = _bound(interface, buffer, if_plain=_WHOLE, if_tagged=_NOTE)
        # The kernel serves the last that was bound first: a note never comes before its frame.
        self._tagged = _bound(interface, buffer, if_plain=0, if_tagged=_WHOLE)
        self._recv_into = self._plain.recv_into
        self._send = self._plain.send

    def fileno(self) -> int:
        """Return the descriptor to wait for, readable and writable alike."""
        return self._plain.fileno()

    def receive(self, limit: int = BATCH) -> list[memoryview]:
        """Return the frames that wait, from Ethernet up, at most `limit` of them (and 64).

        The views are valid until the next call.
        """
        frames = []
        recv_into = self._recv_into
        try:
            for slot in self._slots[:limit]:
                size = recv_into(slot)
                if size == _NOTE:
                    size = self._recv_tagged(slot)
                frames.append(slot[:size])
        except BlockingIOError:
            pass
        except OSError as error:  # told once when the interface goes down
            if error.errno not in _DOWN:
                raise
        return frames

    def send(self, frame: ReadBuffer) -> bool:
        """Send one frame, tags included; False, and counted, where the kernel refuses it."""
        try:
            self._send(frame)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                self.oversized += 1
            elif error.errno == errno.EAGAIN or error.errno in _DOWN:
                self.send_drops += 1
            else:
                raise
            return False
        return True

    def send_all(self, frames: Sequence[ReadBuffer]) -> int:
        """Send frames in order; return how many are done with.

        Fewer than all where the kernel has no room for the next one for now: wait until
        `fileno` is writable and offer the rest. (A veth always has room, since its other end is
        served in the same system call; other interfaces have queues.) A frame that is refused
        for another reason is counted, and done with.
        """
        send, done = self._send, 0
        while True:
            try:
                for frame in frames[done:]:
                    send(frame)
                    done += 1
            except BlockingIOError:
                return done
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    self.oversized += 1
                elif error.errno in _DOWN:
                    self.send_drops += 1
                else:
                    raise
                done += 1
            else:
                return done

    def receive_drops(self) -> int:
        """Return how many frames were lost so far because our buffer was full."""
        raw = self._plain.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        self._dropped += _STATISTICS.unpack(raw)[1]
        return self._dropped

    def frames_held(self, frame_size: int) -> int:
        """Return how many frames of a size surely wait here without loss."""
        return packets_held(receive_buffer(self._plain), frame_size)

    def close(self) -> None:
        self._plain.close()
        self._tagged.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recv_tagged(self, slot: memoryview) -> int:
        """Receive the frame that a note spoke of.

        Limit: where one of the two sockets lost a frame for lack of room and the other did not,
        tagged frames move against the others by as many places.
        """
        size, aux, _, _ = self._tagged.recvmsg_into([slot[_TAG.size :]], _AUX_SPACE)
        slot[:12] = slot[4:16]
        _TAG.pack_into(slot, 12, *_tag(aux))
        return size + _TAG.size


def _tag(aux: Sequence[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Return TPID and TCI from the control message; the filter saw to it that there is one."""
    for level, kind, data in aux:
        if level == _SOL_PACKET and kind == _PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(data)
            if status & _TP_STATUS_VLAN_VALID:
                known = status & _TP_STATUS_VLAN_TPID_VALID
                return tpid if known else _ETH_P_8021Q, tci
    raise AssertionError("a tagged frame came without its tag")


def _bound(interface: str, buffer: int, *, if_plain: int, if_tagged: int) -> socket.socket:
    """Return a socket that gets so many bytes of frames without, and with, a tag."""
    # Protocol 0 receives nothing: the socket stays deaf until it is bound, filter in place.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        ask_for_buffers(sock, buffer)
        _attach_filter(
            sock,
            (_BPF_LOAD, 0, 0, _VLAN_TAG_PRESENT),
            (_BPF_JUMP_IF_EQUAL, 0, 1, 0),
            (_BPF_RETURN, 0, 0, if_plain),
            (_BPF_RETURN, 0, 0, if_tagged),
        )
        sock.bind((interface, _ETH_P_ALL))
    except BaseException:
        sock.close()
        raise
    return sock


def _attach_filter(sock: socket.socket, *steps: tuple[int, int, int, int]) -> None:
    code = b"".join(_BPF_STEP.pack(*step) for step in steps)
    memory = array("B", code)  # must live until the call has returned
    program = _FPROG.pack(len(steps), memory.buffer_info()[0])
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
