"""Our end of ibv_rc_pingpong: SENDs back and forth, every byte checked.

    python -m netem.verbs.pingpong ADDRESS [PEER] [--size 4096] [--rounds 1000] [--mtu 1024]

Without PEER it waits for one; with PEER it is the client. Its peer is the tool of that name on
any host with RDMA (say its `-g`), or another of these. The exchange before and the parameters
are the tool's: specs/rocev2.md, section 13.

The tool has one buffer: it receives into it and sends from it. So what comes back has been
through its memory, and every message can be one of its own.
"""

import argparse
import ipaddress
import random
import socket
import sys
import time
from dataclasses import dataclass

import trio

from netem.topology.identity import udp_source_port
from netem.verbs.context import Context, open_device
from netem.verbs.links import VerbsError
from netem.verbs.objects import MemoryRegion, QueuePair
from netem.verbs.tcp import listen_once, open_stream, speak
from transports.roce.completion import WcOpcode, WcStatus
from transports.roce.exchange.pingpong import PORT, Address, PingPong
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, WrOpcode
from wire.roce.gid import gid_of, ip_of

_TOOLS_FILLING = 0x7B


@dataclass(frozen=True, slots=True)
class Game:
    """What is played."""

    size: int = 4096
    rounds: int = 1000
    path_mtu: int = 1024
    echoes: bool = False  # send back what came, as the tool does; else messages of one's own
    timeout: int = 14  # ACK timeout code; a guest on a busy host deserves more patience


@dataclass(slots=True)
class Played:
    """What came of it."""

    rounds: int = 0
    wrong: int = 0  # messages that are not what they should be
    seconds: float = 0.0


async def play(device: Context, game: Game, peer: str = "", port: int = PORT) -> Played:
    """Play one game, as client of `peer` or as server; VerbsError where the peer misbehaves."""
    pd, cq = device.alloc_pd(), device.create_cq()
    qp = pd.create_qp(cq)
    out, into = (pd.register(game.size, Access.LOCAL_WRITE) for _ in range(2))
    await qp.init()
    qp.post_recv(RecvWr(0, (into.sge(),)))
    psn = device.rng.randrange(1 << 24)
    ours = Address(
        qp.qp_num, psn, gid_of(device.local_ip(peer) if peer else device.addresses[0])
    )
    exchange = PingPong((ours,), is_client=bool(peer))
    connecting = open_stream(peer, port) if peer else listen_once(device, port)
    async with await connecting as stream:
        async for told in speak(exchange, stream):
            [theirs] = told.addresses
            await _connect(qp, psn, theirs, game)
            exchange.proceed()
    return await _Match(qp, (out, into), game, is_client=bool(peer)).play()


class _Match:
    """The messages of one game."""

    def __init__(
        self,
        qp: QueuePair,
        memory: tuple[MemoryRegion, MemoryRegion],
        game: Game,
        *,
        is_client: bool,
    ) -> None:
        self._qp = qp
        self._out, self._into = memory
        self._game = game
        self._is_client = is_client
        self._rng = random.Random(qp.qp_num)
        self._expected = b"" if game.echoes else bytes([_TOOLS_FILLING]) * game.size
        self._sent = 0
        self._result = Played()

    async def play(self) -> Played:
        start = time.monotonic()
        acknowledged = 0
        if self._is_client:
            self._send()
        rounds = self._game.rounds
        while self._result.rounds < rounds or acknowledged < rounds:
            done = await self._qp.recv_cq.next()
            if done.status is not WcStatus.SUCCESS:
                raise VerbsError(
                    f"{done.opcode.name} {done.wr_id}: {done.status.name} {done.detail}"
                )
            if done.opcode is WcOpcode.RECV:
                self._take(done.byte_len)
            else:
                acknowledged += 1
        self._result.seconds = time.monotonic() - start
        return self._result

    def _take(self, length: int) -> None:
        came = bytes(self._into.view)
        if length != self._game.size or (self._expected and came != self._expected):
            self._result.wrong += 1
        self._result.rounds += 1
        if self._result.rounds < self._game.rounds:
            self._into.view[:] = bytes(self._game.size)
            self._qp.post_recv(RecvWr(self._result.rounds, (self._into.sge(),)))
        if self._sent < self._game.rounds:
            self._send(came)

    def _send(self, came: bytes = b"") -> None:
        if self._game.echoes:
            data = came or bytes([_TOOLS_FILLING]) * self._game.size
        else:
            data = self._expected = self._rng.randbytes(self._game.size)
        self._out.view[:] = data
        self._qp.post_send(SendWr(self._sent, WrOpcode.SEND, (self._out.sge(),)))
        self._sent += 1


async def _connect(qp: QueuePair, psn: int, theirs: Address, game: Game) -> None:
    remote = str(ipaddress.ip_address(ip_of(theirs.gid)))
    source = udp_source_port(qp.qp_num, theirs.qpn)
    ah = await qp.context.create_ah(remote, udp_source_port=source)
    await qp.connect(
        ah,
        theirs.qpn,
        sq_psn=psn,
        rq_psn=theirs.psn,
        path_mtu=game.path_mtu,
        max_rd_atomic=1,
        max_dest_rd_atomic=1,
        timeout=game.timeout,
    )


async def _main(arguments: argparse.Namespace) -> int:
    game = Game(
        arguments.size, arguments.rounds, arguments.mtu, arguments.echo, arguments.timeout
    )
    own = _resolved(arguments.address)
    async with open_device(own, mode=arguments.mode) as device:
        peer = arguments.peer and _resolved(arguments.peer)
        played = await play(device, game, peer, arguments.port)
        again = sum(device.retransmissions.values())
    bits = 2 * game.size * game.rounds * 8
    sys.stdout.write(
        f"{played.rounds} rounds of {game.size} bytes in {played.seconds:.2f} s,"
        f" {bits / played.seconds / 1e6:.2f} Mbit/s; {played.wrong} wrong, {again} sent again\n"
    )
    return 1 if played.wrong else 0


def _resolved(name: str) -> str:
    """Return the address of a node, which a lab has in its /etc/hosts; an address stays."""
    return str(socket.getaddrinfo(name, None)[0][4][0])


def main() -> None:
    """Play as the command line says; 1 where a message was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("address", help="ours, or our name, on an interface of this namespace")
    parser.add_argument("peer", nargs="?", default="", help="whose client we are")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--mtu", type=int, default=1024, help="path MTU: 256 to 4096")
    parser.add_argument("--timeout", type=int, default=14, help="4.096 us x 2^n")
    parser.add_argument("--echo", action="store_true", help="send back what comes")
    parser.add_argument("--port", type=int, default=PORT, help="of TCP")
    parser.add_argument("--mode", choices=("frame", "datagram"), default="frame")
    sys.exit(trio.run(_main, parser.parse_args()))


if __name__ == "__main__":
    main()
