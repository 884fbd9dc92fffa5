"""Our end of ibv_rc_pingpong: the exchange in text over TCP, then messages back and forth.

The tool has one buffer, receives into it and sends from it, so from its second message on it
sends what it got: what comes back has been through its memory and both directions of the cable.
"""

import contextlib
import ipaddress
import random
import re
import socket
from dataclasses import dataclass, field

from tests.interop.roce.rxe import GUEST, OURS, Cable
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.device import Device, DeviceConfig
from transports.roce.events import Event, Retransmitted
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode

PORT = 18515
_ADDR = 0x10_0000
_OURS, _THEIRS = 0, 1  # halves of our memory: what is sent, what is received
_TOOLS_FILLING = 0x7B
_MESSAGE = re.compile(rb"([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0")
_PATIENT = 18  # ACK time-out of 1 s: a guest on a busy host is slow, and that is no loss


@dataclass
class End:
    """One queue pair of ours that plays ping-pong, and what it has seen."""

    cable: Cable
    family: int
    size: int
    rounds: int
    path_mtu: int
    is_client: bool
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    wrong: list[int] = field(default_factory=list)  # messages that are not what was sent
    retransmitted: list[Retransmitted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._local = ipaddress.ip_address(OURS[self.family])
        self.device = Device(DeviceConfig((self._local.packed,)), random.Random(self.size))
        pd = self.device.alloc_pd()
        self._memory = bytearray(2 * self.size)
        self._region = self.device.register(pd, _ADDR, self._memory, Access.LOCAL_WRITE)
        self.qp = self.device.create_qp(pd)
        self._psn = 0xFFFFF0  # wraps on the way
        self.qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0)
        self._expect(bytes([_TOOLS_FILLING]) * self.size)
        self._receive()

    @property
    def is_done(self) -> bool:
        return self.received == self.acknowledged == self.rounds

    def connect(self, listener: socket.socket) -> None:
        """Exchange addresses with the tool, as client or as server, and go to RTS."""
        if self.is_client:
            with socket.create_connection((GUEST[self.family], PORT), 30.0) as line:
                line.sendall(self._about_us())
                theirs = _read(line)
                line.sendall(b"done\0")
            self._set_up(theirs)
            return
        line, _ = listener.accept()
        with line:
            line.settimeout(30.0)
            self._set_up(_read(line))
            line.sendall(self._about_us())
            assert line.recv(5, socket.MSG_WAITALL) == b"done\0"

    def play(self) -> None:
        """Send and receive all messages."""
        if self.is_client:
            self._send()
        self.cable.drive(self.device, self._react, lambda: self.is_done)

    def _react(self, event: Event) -> None:
        match event:
            case Retransmitted():
                self.retransmitted.append(event)
            case WorkCompletion(status=WcStatus.SUCCESS, opcode=opcode) if opcode & 128:
                self._take(event.byte_len)
            case WorkCompletion(status=WcStatus.SUCCESS):
                self.acknowledged += 1
            case WorkCompletion():
                raise AssertionError(f"{event.status.name}: {event.detail}")

    def _take(self, length: int) -> None:
        if length != self.size or self._half(_THEIRS) != self._expected:
            self.wrong.append(self.received)
        self.received += 1
        if self.received < self.rounds:
            self._receive()
        if self.sent < self.rounds:
            self._send()

    def _send(self) -> None:
        """Send a message like no other, and expect it back."""
        start = self.size * _OURS
        data = random.Random(self.sent).randbytes(self.size)
        self._memory[start : start + self.size] = data
        self._expect(data)
        self.qp.post_send(SendWr(self.sent, WrOpcode.SEND, (self._sge(_OURS),)), 0)
        self.sent += 1

    def _expect(self, data: bytes) -> None:
        self._expected = data

    def _receive(self) -> None:
        start = self.size * _THEIRS
        self._memory[start : start + self.size] = bytes(self.size)
        self.qp.post_recv(RecvWr(self.received, (self._sge(_THEIRS),)), 0)

    def _half(self, half: int) -> bytes:
        return bytes(self._memory[self.size * half : self.size * (half + 1)])

    def _sge(self, half: int) -> Sge:
        return Sge(_ADDR + self.size * half, self.size, self._region.l_key)

    def _about_us(self) -> bytes:
        gid = _gid(self._local)
        return f"0000:{self.qp.qp_num:06x}:{self._psn:06x}:{gid.hex()}\0".encode()

    def _set_up(self, theirs: re.Match[bytes]) -> None:
        remote = ipaddress.ip_address(GUEST[self.family])
        assert bytes.fromhex(theirs[4].decode()) == _gid(remote)
        self.qp.modify(
            QpState.RTR,
            0,
            ah=AddressHandle(self._local.packed, remote.packed),
            path_mtu=self.path_mtu,
            dest_qp_num=int(theirs[2], 16),
            rq_psn=int(theirs[3], 16),
            max_dest_rd_atomic=1,
            min_rnr_timer=12,
        )
        self.qp.modify(
            QpState.RTS,
            0,
            sq_psn=self._psn,
            timeout=_PATIENT,
            retry_cnt=7,
            rnr_retry=7,
            max_rd_atomic=1,
        )


def listen() -> socket.socket:
    """Open the port to which the tool connects as a client."""
    listener = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)
    listener.settimeout(60.0)
    return listener


def await_listener(cable: Cable) -> None:
    """Wait until the tool in the guest listens: 18515 is 0x4853, and 0A is listening."""
    for _ in range(600):
        tables = cable.guest.run("busybox", "cat", "/proc/net/tcp", "/proc/net/tcp6")
        if re.search(r":4853 0+:0000 0A", tables):
            return
    raise AssertionError("the tool does not listen")


def _gid(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    """Return the address as a GID: one of IPv4 behind ::ffff."""
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def _read(line: socket.socket) -> re.Match[bytes]:
    with contextlib.suppress(TimeoutError):
        text = line.recv(52, socket.MSG_WAITALL)
        if match := _MESSAGE.fullmatch(text):
            return match
        raise AssertionError(f"no address of a queue pair: {text!r}")
    raise AssertionError("the tool says nothing")
