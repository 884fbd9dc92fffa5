"""Sends frames through one end of a veth and notes when they arrive at the other.

A frame is the bytes that the host gives and, behind them, its number twice, so that a flipped
bit gives itself away. Times of departure are taken just before the system call, times of
arrival by the kernel.
"""

import socket
import struct
import time

NUMBER = struct.Struct("!II")
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_TIMESPEC = struct.Struct("@qq")
_ROOM = 256 << 20
_ALL = 0x0003  # ETH_P_ALL: a flipped bit may have changed the EtherType


def listen(ifname):
    """Open a socket that keeps all that arrives, with the time of arrival."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    sock.bind((ifname, _ALL))
    sock.setblocking(False)
    return sock


def exchange(sender, receiver, *, head, frames, spacing_ns, quiet_ns):
    """Send `frames` frames, one every `spacing_ns` or as fast as it goes.

    Returns when each was sent, (number, time) of each arrival in its order, and (number, bytes)
    of those that are not as they were sent. All has arrived `quiet_ns` after the last was sent.
    """
    head = bytes.fromhex(head)
    now = time.clock_gettime_ns
    sent, arrived, changed = [], [], []
    with listen(receiver) as ear, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as mouth:
        mouth.bind((sender, 0))
        due = now(time.CLOCK_REALTIME) + 1_000_000
        for number in range(frames):
            data = head + NUMBER.pack(number, number)
            wait = due - now(time.CLOCK_REALTIME)
            if wait > 0:
                time.sleep(wait * 1e-9)
            sent.append(now(time.CLOCK_REALTIME))
            mouth.send(data)
            due += spacing_ns
        time.sleep(quiet_ns * 1e-9)
        while True:
            try:
                data, [(_, _, stamp)], _, _ = ear.recvmsg(2048, 64)
            except BlockingIOError:
                break
            seconds, nanoseconds = _TIMESPEC.unpack(stamp)
            number, again = NUMBER.unpack_from(data, len(data) - NUMBER.size)
            arrived.append((number, seconds * 10**9 + nanoseconds))
            if number != again or data[: -NUMBER.size] != head:
                changed.append((number, data.hex()))
    start = sent[0]
    return {
        "sent": [at - start for at in sent],
        "arrived": [(number, at - start) for number, at in arrived],
        "changed": changed,
    }
