"""Bare loops over the sockets that nodes use: no protocol, no check, no event loop.

The sender sends as fast as the kernel takes it, the receiver counts what it gets; what the
kernel drops between them is not counted. So a ceiling is what the receiving side can do.
"""

import contextlib
import socket
import struct
import time
from functools import partial

from netem.bench.field import Body, Figures, run_bare
from netem.topology.plan import Plan

DURATION_S = 2.0  # of sending
QUIET_S = 1  # the receiver ends after a second without anything
WARM_UP = 64  # packets that are not counted: the first ones wait for the other process
BETWEEN_CLOCKS = 256  # packets sent per look at the clock

ETH_P_ALL = 0x0003
PACKET_IGNORE_OUTGOING = 23
SOL_PACKET = 263
UDP_SEGMENT = 103
UDP_GRO = 104
SEGMENTS_BYTES = 65_000  # of one train: what IPv6 and UDP allow, less a margin


def frames_per_second(plan: Plan, frame_size: int) -> float:
    """Return what two processes with packet sockets move from h0 to h1."""
    return frames_and_cost(plan, frame_size)[0]


def frames_and_cost(plan: Plan, frame_size: int) -> tuple[float, float]:
    """Return the same, and seconds of a processor per frame at the busier of the two ends."""
    source, target = (port_mac(plan, name) for name in ("h0", "h1"))
    frame = target + source + b"\x88\xb5" + bytes(frame_size - 14)
    figures = run_bare(
        plan, {"h0": partial(_send_frames, frame), "h1": partial(_receive_frames, frame_size)}
    )
    sent, got = figures["h0"], figures["h1"]
    cost = max(end["used"] / (end["count"] or 1) for end in (sent, got))
    return float(got["count"] / got["seconds"]), float(cost)


def trains_per_second(plan: Plan, segment_size: int) -> float:
    """Return the UDP payload bytes per second of UDP_SEGMENT trains from h0 to h1."""
    addresses = {node.name: node.ports[0].ipv6 or "" for node in plan.nodes}
    segments = min(64, SEGMENTS_BYTES // segment_size)
    bodies: dict[str, Body] = {
        "h0": partial(_send_trains, addresses["h0"], addresses["h1"], segment_size, segments),
        "h1": partial(_receive_trains, addresses["h1"]),
    }
    figures = run_bare(plan, bodies)["h1"]
    return float(figures["bytes"] / figures["seconds"])


def port_mac(plan: Plan, node: str) -> bytes:
    """Return the MAC address of the first port of a node."""
    return bytes.fromhex(plan.node(node).ports[0].mac.replace(":", ""))


def _send_frames(frame: bytes) -> Figures:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with sock:
        sock.bind(("p0", ETH_P_ALL))
        send = sock.send
        count, before = 0, time.process_time()
        stop = time.monotonic() + DURATION_S
        while time.monotonic() < stop:
            for _ in range(BETWEEN_CLOCKS):
                with contextlib.suppress(OSError):  # ENOBUFS: the peer's queue is full
                    send(frame)
            count += BETWEEN_CLOCKS
        used = time.process_time() - before
    return {"count": count, "used": used}


def _receive_frames(frame_size: int) -> Figures:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with sock:
        sock.bind(("p0", ETH_P_ALL))
        sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        _give_up_when_quiet(sock)
        slot = memoryview(bytearray(frame_size + 64))
        receive = sock.recv_into
        count = 0
        first = last = used = before = 0.0
        with contextlib.suppress(OSError):  # quiet, or the sender's end of the link is gone
            for _ in range(WARM_UP):
                receive(slot)
            first = last = time.monotonic()
            before = time.process_time()
            while True:
                for _ in range(BETWEEN_CLOCKS):
                    receive(slot)
                count += BETWEEN_CLOCKS
                last = time.monotonic()
                used = time.process_time() - before
    return {"count": count, "seconds": last - first or 1.0, "used": used}


def _send_trains(source: str, target: str, segment_size: int, segments: int) -> Figures:
    train = bytes(segment_size * segments)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.bind((source, 0))
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, segment_size)
        send = sock.sendto
        stop = time.monotonic() + DURATION_S
        while time.monotonic() < stop:
            for _ in range(16):
                send(train, (target, 4791))
    return {}


def _receive_trains(address: str) -> Figures:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        sock.bind((address, 4791))
        _give_up_when_quiet(sock)
        slot = [memoryview(bytearray(1 << 16))]
        receive = sock.recvmsg_into
        space = socket.CMSG_SPACE(4)
        total = 0
        first = last = 0.0
        with contextlib.suppress(BlockingIOError):
            for _ in range(16):
                receive(slot, space)
            first = last = time.monotonic()
            while True:
                for _ in range(16):
                    total += receive(slot, space)[0]
                last = time.monotonic()
    return {"bytes": total, "seconds": last - first or 1.0}


def _give_up_when_quiet(sock: socket.socket) -> None:
    """Let a blocking receive end; a Python time-out would cost a poll per packet."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", QUIET_S, 0))
