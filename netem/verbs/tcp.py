"""Connecting two queue pairs over TCP, in the words of perftest.

Each side tells the other its queue pair, the PSN of its first packet, its address and a memory
region, in one message of 108 bytes (perftest 4.5; specs/rocev2.md, section 13). The passive
side is in RTS before it answers, so whatever the active side sends finds it ready.
"""

import ipaddress
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self, TypedDict, Unpack

import trio

from netem.topology.identity import udp_source_port
from netem.verbs.context import Context
from netem.verbs.links import VerbsError
from netem.verbs.objects import MemoryRegion, QueuePair
from transports.roce.exchange.dialogue import Dialogue, Event
from transports.roce.exchange.keys import TEXT_SIZE, Keys
from transports.roce.exchange.perftest import PORT
from wire.codec import DecodeError
from wire.roce.gid import gid_of, ip_of

PATIENCE_S = 60.0  # for a peer that is still starting
_LOOK_AGAIN_S = 0.05


class QpOptions(TypedDict, total=False):
    """What else `QueuePair.connect` takes."""

    path_mtu: int
    access: int
    max_rd_atomic: int
    max_dest_rd_atomic: int
    timeout: int
    retry_cnt: int
    rnr_retry: int
    min_rnr_timer: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a peer must know of a queue pair, and of the memory that it may use there."""

    qp_num: int
    psn: int
    address: str
    addr: int = 0
    r_key: int = 0
    max_rd_atomic: int = 1  # READs and atomics that this end answers at once

    def pack(self) -> bytes:
        """Return perftest's message, 108 bytes."""
        gid = gid_of(ipaddress.ip_address(self.address).packed)
        keys = Keys(self.qp_num, self.psn, gid, self.max_rd_atomic, self.r_key, self.addr)
        return keys.pack_text()

    @classmethod
    def unpack(cls, message: bytes) -> Self:
        """Return what a message says; VerbsError for anything else. Total."""
        try:
            keys = Keys.unpack_text(message)
        except DecodeError as error:
            raise VerbsError(str(error)) from error
        address = str(ipaddress.ip_address(ip_of(keys.gid)))
        return cls(keys.qpn, keys.psn, address, keys.va, keys.r_key, keys.out_reads)


async def accept(
    qp: QueuePair,
    memory: MemoryRegion | None = None,
    *,
    port: int = PORT,
    **options: Unpack[QpOptions],
) -> Endpoint:
    """Wait for one peer on TCP `port`, connect `qp` with it, and return what it said.

    It is told of `memory`. `options` are those of `QueuePair.connect`.
    """
    async with await listen_once(qp.context, port) as stream:
        theirs = Endpoint.unpack(await read_exactly(stream, TEXT_SIZE))
        ours = endpoint(qp, theirs.address, memory)
        await _connect(qp, ours, theirs, options)
        await stream.send_all(ours.pack())
    return theirs


async def connect(
    qp: QueuePair,
    remote: str,
    memory: MemoryRegion | None = None,
    *,
    port: int = PORT,
    **options: Unpack[QpOptions],
) -> Endpoint:
    """Connect `qp` with the queue pair of the one who waits in `accept` at `remote`.

    Return what it said. A peer that does not listen yet is waited for, PATIENCE_S seconds.
    """
    ours = endpoint(qp, remote, memory)
    async with await open_stream(remote, port) as stream:
        await stream.send_all(ours.pack())
        theirs = Endpoint.unpack(await read_exactly(stream, TEXT_SIZE))
        await _connect(qp, ours, theirs, options)
    return theirs


def endpoint(qp: QueuePair, remote: str, memory: MemoryRegion | None = None) -> Endpoint:
    """Return what `remote` must know of `qp` and `memory`; the first PSN is drawn."""
    local = str(ipaddress.ip_address(qp.context.local_ip(remote)))
    psn = qp.context.rng.randrange(1 << 24)
    if memory is None:
        return Endpoint(qp.qp_num, psn, local, max_rd_atomic=16)
    return Endpoint(qp.qp_num, psn, local, memory.addr, memory.r_key, 16)


async def listen_once(
    context: Context, port: int, listening: trio.Event | None = None
) -> trio.SocketStream:
    """Return the first TCP connection to any address of `context`.

    `listening` is set when peers may connect.
    """
    hosts = [str(ipaddress.ip_address(address)) for address in context.addresses]
    listeners = [(await trio.open_tcp_listeners(port, host=host))[0] for host in hosts]
    if listening is not None:
        listening.set()
    async with trio.open_nursery() as nursery:
        found: list[trio.SocketStream] = []

        async def serve(listener: trio.SocketListener) -> None:
            async with listener:
                found.append(await listener.accept())
                nursery.cancel_scope.cancel()

        for listener in listeners:
            nursery.start_soon(serve, listener)
    return found[0]


async def open_stream(
    remote: str, port: int, patience_s: float = PATIENCE_S
) -> trio.SocketStream:
    """Return a TCP connection; OSError where nobody has listened for `patience_s` seconds."""
    deadline = trio.current_time() + patience_s
    while True:
        try:
            return await trio.open_tcp_stream(remote, port)
        except OSError:
            if trio.current_time() > deadline:
                raise
        await trio.sleep(_LOOK_AGAIN_S)


async def read_exactly(stream: trio.SocketStream, size: int) -> bytes:
    """Return `size` bytes; VerbsError where the peer hangs up before."""
    data = bytearray()
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        if not piece:
            raise VerbsError(f"the peer hung up after {len(data)} of {size} bytes")
        data += piece
    return bytes(data)


async def _connect(qp: QueuePair, ours: Endpoint, theirs: Endpoint, options: QpOptions) -> None:
    port = udp_source_port(qp.qp_num, theirs.qp_num)
    ah = await qp.context.create_ah(theirs.address, udp_source_port=port)
    options.setdefault("max_rd_atomic", max(1, theirs.max_rd_atomic))
    await qp.connect(ah, theirs.qp_num, sq_psn=ours.psn, rq_psn=theirs.psn, **options)


async def speak(dialogue: Dialogue[Event], stream: trio.SocketStream) -> AsyncIterator[Event]:
    """Hold a dialogue with a peer; yield what it tells, to be done before going on.

    VerbsError where the peer does not keep to it.
    """
    while True:
        for text in dialogue.writes():
            await stream.send_all(text)
        if told := list(dialogue.events()):
            for event in told:
                yield event
            continue
        if dialogue.failure is not None:
            raise VerbsError(dialogue.failure)
        if dialogue.is_done:
            return
        try:
            data = await stream.receive_some(1 << 16)
        except trio.BrokenResourceError:  # reset: the peer has closed without reading all
            data = b""
        if data:
            dialogue.feed(data)
        else:
            dialogue.closed()
