"""Latency: two hosts that answer each other's messages, and two packet sockets that do.

As perftest measures it: each side sends when the other's message has come, and half of the time
from one message to the next is the latency. Ours goes the whole way of a node: driver, queue
pair, ICRC, acknowledgements beside it. The bare one waits in trio, as a node's idle loop does,
for a frame of the size of the message's packet.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from random import Random
from typing import Literal

import trio

from netem.bench.ceilings import ETH_P_ALL, PACKET_IGNORE_OUTGOING, SOL_PACKET, port_mac
from netem.bench.field import Figures, run_bare
from netem.clock import RealClock
from netem.host.port import HostPort, address
from netem.impair.departure import FrameMeta
from netem.impair.ports import egress_of
from netem.node.build import PortSockets
from netem.node.datagram import DatagramDriver, DatagramEnd
from netem.node.driver import Driver
from netem.node.frames import FrameDriver
from netem.node.port import Port
from netem.node.turns import Turns
from netem.node.wrapping import Wrapping
from netem.sockets.packet import PacketSocket
from netem.sockets.timer import Timer, be_punctual
from netem.topology.plan import Plan
from transports.clock import Ns
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.completion import WorkCompletion
from transports.roce.datagram import Datagram, DatagramDevice
from transports.roce.device import DeviceConfig
from transports.roce.port import Port as NicPort
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.codec import ReadBuffer

Op = Literal["write", "send"]
OPCODES = {"write": WrOpcode.RDMA_WRITE, "send": WrOpcode.SEND}

WARM_UP = 200  # exchanges that do not count
_QP, _PSN, _ADDR, _KEY, _ROOM = 0x100, 0, 0x1000, 0x1200, 4096
_FROM = 64  # where the message lies that is sent; the one that comes is at 0
_EVERY = 1 << 16  # a message is its number in two bytes
_DEPTH = 64  # receives that are posted
_LIMIT_S = 30
_PATIENCE_S = 0.1
_ETHERTYPE = b"\x88\xb5"  # for experiments. IEEE 802
_PACKET_SIZE = 14 + 40 + 8 + 12 + 16 + 4 + 4  # of a WRITE of two bytes: RETH, pad


class PingPong:
    """One side: a queue pair, and what it does as messages come."""

    def __init__(
        self, device: NicPort, ends: tuple[bytes, bytes], iterations: int, op: Op, begins: bool
    ) -> None:
        """Exchange so many messages each way; `begins` says who sends the first.

        `ends` are the address of `device` and the other side's.
        """
        self.ends = ends
        self._device = device
        self._op = op
        self._begins = begins
        self._most = iterations + WARM_UP
        self._sent = self._came = 0
        self._is_over = False
        self.times: list[Ns] = []  # of the other's messages
        self._region = device.register(
            device.alloc_pd(), _ADDR, _ROOM, access=0x7, l_key=_KEY, r_key=_KEY
        )
        self._qp = qp = device.create_qp(self._region.pd, qp_num=_QP)
        qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0x6)
        qp.modify(
            QpState.RTR, 0, ah=AddressHandle(*ends), path_mtu=1024, dest_qp_num=_QP,
            rq_psn=_PSN, max_dest_rd_atomic=1, min_rnr_timer=12,
        )  # fmt: skip
        qp.modify(
            QpState.RTS, 0, sq_psn=_PSN, timeout=14, retry_cnt=7, rnr_retry=7, max_rd_atomic=1
        )
        # As perftest does: one request, posted again and again.
        self._request = SendWr(
            1, OPCODES[op], (Sge(_ADDR + _FROM, 2, _KEY),), _ADDR, _KEY, signaled=False
        )
        for _ in range(_DEPTH):
            self._offer(0)

    def start(self, now: Ns) -> None:
        """Send the first message, if this side begins."""
        if self._begins:
            self._send(now)

    def _offer(self, now: Ns) -> None:
        if self._op == "send":
            self._qp.post_recv(RecvWr(0, (Sge(_ADDR, 2, _KEY),)), now)

    def _send(self, now: Ns) -> None:
        self._sent += 1
        number = (self._sent % _EVERY).to_bytes(2, "big")
        self._region.view[_FROM : _FROM + 2] = number
        self._qp.post_send(self._request, now)

    def came(self, now: Ns) -> None:
        """Answer the message that a packet has brought, if it has brought one."""
        for event in self._device.events():
            if isinstance(event, WorkCompletion):
                self._offer(now)
        awaited = ((self._came + 1) % _EVERY).to_bytes(2, "big")
        if self._is_over or self._region.view[:2] != awaited:
            return
        self._came += 1
        self.times.append(now)
        if self._came >= self._most:
            self._is_over = True
        if self._sent < self._most:
            self._send(now)

    def events(self) -> list[str]:
        """Say that all have come, and been answered, once that is so."""
        return ["over"] if self._is_over else []


class FramePingPong(PingPong):
    """The same as a machine over the frames of one port."""

    def __init__(self, plan: Plan, name: str, iterations: int, op: Op, *, begins: bool) -> None:
        node = plan.node(name)
        self._port = HostPort(node, node.ports[0])
        super().__init__(self._port.device, _ends(plan, name), iterations, op, begins)

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> None:
        """Take a frame."""
        del port
        self._port.receive(frame, now)
        self.came(now)

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        self._port.expire(now)

    def transmit(self, now: Ns) -> Iterator[tuple[str, bytes, FrameMeta]]:
        """Hand out what is to be sent."""
        return self._port.transmit(now)

    @property
    def deadline(self) -> Ns | None:
        return self._port.deadline


class DatagramPingPong(PingPong):
    """The same as a machine over the UDP payloads of one port."""

    def __init__(self, plan: Plan, name: str, iterations: int, op: Op, *, begins: bool) -> None:
        ends = _ends(plan, name)
        self._port = DatagramDevice(DeviceConfig(addresses=ends[:1]), Random(name))
        self._name = plan.node(name).ports[0].name
        super().__init__(self._port, ends, iterations, op, begins)

    def receive_datagram(  # noqa: PLR0917 - a datagram machine's signature
        self,
        port: str,
        payload: ReadBuffer,
        src_ip: bytes,
        src_port: int,
        dst_ip: bytes,
        now: Ns,
    ) -> None:
        """Take a UDP payload."""
        del port
        self._port.receive_datagram(payload, src_ip, src_port, dst_ip, now)
        self.came(now)

    def receive_train(  # noqa: PLR0917 - as above
        self,
        port: str,
        buffer: ReadBuffer,
        segment_size: int,
        src_ip: bytes,
        src_port: int,
        dst_ip: bytes,
        now: Ns,
    ) -> None:
        """Take some that came as one."""
        del port
        self._port.receive_train(buffer, segment_size, src_ip, src_port, dst_ip, now)
        self.came(now)

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        self._port.expire(now)

    def transmit_datagrams(self, now: Ns) -> Iterator[tuple[str, Datagram]]:
        """Hand out what is to be sent."""
        for datagram in self._port.transmit_datagrams(now):
            yield self._name, datagram

    @property
    def deadline(self) -> Ns | None:
        return self._port.deadline


def _ends(plan: Plan, name: str) -> tuple[bytes, bytes]:
    """Return the address of a node's first port, and that of its peer."""
    port = plan.node(name).ports[0]
    peer = plan.node(port.peer.partition(":")[0])
    own_ip, peer_ip = address(port.ipv6), address(peer.ports[0].ipv6)
    assert own_ip is not None
    assert peer_ip is not None
    return own_ip, peer_ip


def half_round_trips(plan: Plan, op: Op, iterations: int) -> list[float]:
    """Return the latencies of messages of two bytes between h0 and h1, in nanoseconds.

    In the mode that the plan has them in.
    """
    bodies = {name: partial(_play, plan, name, iterations, op) for name in ("h0", "h1")}
    return list(run_bare(plan, bodies)["h0"]["latencies"])


def bare_half_round_trips(plan: Plan, iterations: int) -> list[float]:
    """Return those of frames between packet sockets that are waited for in trio."""
    macs = {name: port_mac(plan, name) for name in ("h0", "h1")}
    bodies = {
        name: partial(_play_bare, macs[other] + macs[name], iterations, begins=name == "h0")
        for name, other in (("h0", "h1"), ("h1", "h0"))
    }
    return list(run_bare(plan, bodies)["h0"]["latencies"])


def _halves(times: list[Ns]) -> Figures:
    counted = times[WARM_UP - 1 :]
    return {"latencies": [(later - earlier) / 2 for earlier, later in pairwise(counted)]}


def _play(plan: Plan, name: str, iterations: int, op: Op) -> Figures:
    is_datagram = plan.node(name).mode == "datagram"
    kind = DatagramPingPong if is_datagram else FramePingPong
    machine = kind(plan, name, iterations, op, begins=name == "h0")
    trio.run(_drive, plan, name, machine)
    return _halves(machine.times)


async def _drive(plan: Plan, name: str, machine: FramePingPong | DatagramPingPong) -> None:
    """Run a machine as a node does, until it says that it is over."""
    node = plan.node(name)
    over = trio.Event()
    be_punctual()

    def tell(_event: object) -> None:
        over.set()

    with ExitStack() as stack:
        turns = stack.enter_context(Turns(stack.enter_context(Timer())))
        port = node.ports[0]
        names = port.name, f"{name}:{port.name}", port.peer
        egress = egress_of(plan, node, port)
        driver: Driver
        if isinstance(machine, DatagramPingPong):
            assert port.ipv6 is not None
            own_ip, _ = _ends(plan, name)
            sockets = PortSockets(port.ipv6, stack)
            wrapping = Wrapping(node, port, own_ip)
            end = DatagramEnd(*names, sockets, egress, wrapping=wrapping, own_ip=own_ip)
            driver = DatagramDriver(machine, [end], turns, tell=tell)
        else:
            frames = stack.enter_context(PacketSocket(port.name))
            driver = FrameDriver(machine, [Port(*names, frames, egress)], turns, tell=tell)
        with trio.fail_after(_LIMIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driver.run, RealClock.starting_now(1), machine.start)
                await over.wait()
                nursery.cancel_scope.cancel()


def _play_bare(addresses: bytes, iterations: int, *, begins: bool) -> Figures:
    times: list[Ns] = []
    trio.run(partial(_bounce, addresses, iterations + WARM_UP, times, begins=begins))
    return _halves(times)


async def _bounce(addresses: bytes, most: int, times: list[Ns], *, begins: bool) -> None:
    """Exchange `most` frames each way. Frames have numbers: the first may have to go again."""
    clock = RealClock.starting_now(1)
    head, tail = addresses + _ETHERTYPE, bytes(_PACKET_SIZE - 16)
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with sock, trio.fail_after(_LIMIT_S):
        sock.bind(("p0", ETH_P_ALL))
        sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        sock.setblocking(False)
        slot = bytearray(2048)
        for n in range(most):
            number = n.to_bytes(2, "big")
            if begins:
                sock.send(head + number + tail)
            while True:
                with trio.move_on_after(_PATIENCE_S if begins and not n else _LIMIT_S) as wait:
                    await trio.lowlevel.wait_readable(sock)
                if wait.cancelled_caught:  # the other process was not there yet
                    sock.send(head + number + tail)
                    continue
                sock.recv_into(slot)
                if slot[12:16] == _ETHERTYPE + number:
                    break
            times.append(clock.now())
            if not begins:
                sock.send(head + number + tail)
