"""An address as a target, joined by the communication manager: `--by cm`.

A server of rdma_cm listens there; for each case the suite is a client that connects. The
manager names the queue pair, and no memory: what needs a key of the endpoint is unsupported,
unless the server shows some (`shown`). What is not seen but agreed, as with rdma_cm: receives
are posted before a request is accepted, here at least two of 4096 bytes. Where an RNR NAK shows
that none was, that is unsupported, too.

Cases of the manager itself connect by what they say; there is only a wire. Before the first of
them one connection is made and ended, so that who is not there is not found to be wrong.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from ipaddress import ip_address

from netem.conform.by_cm import CmWire, join, leave
from netem.conform.cm_words import is_message
from netem.conform.endpoint import (
    PEER_KEY,
    PEER_VA,
    Joined,
    Session,
    Side,
    StageError,
    UnsupportedError,
    Wants,
    Wire,
)
from netem.conform.foreign import NoApplication, Reached, nobody, open_wire
from netem.conform.notation import Case, Relative, Value, Words
from netem.conform.shown import Shown
from netem.conform.vocabulary import hear, say
from transports.clock import MS, Ns
from transports.roce.cm.connection import Connection
from wire.codec import DecodeError
from wire.roce.eths import AtomicEth, Reth
from wire.roce.opcodes import OPCODES, Opcode

# What a REQ asks for, or what does not matter to requests that nobody answers late.
_FREE = {"ip", "sq_psn", "mtu", "min_rnr", "timeout", "retry", "rnr_retry", "max_rd"}
_FREE |= {"max_dest_rd"}
_RECEIVE = 4096  # bytes of each that is posted, at least
_RECEIVES = 2
_GOODBYE: Ns = 500 * MS  # for the DREP to a DREQ of ours


class CmTarget:
    """An endpoint at an address. Made by `open_by_cm`."""

    def __init__(self, reached: Reached, port: int, rng: random.Random) -> None:
        self.name = reached.address
        self._reached = reached
        self._port = port
        self._rng = rng
        # Others in each run: a peer may still hold connections of a run that was cut short.
        self._first_qp = rng.randrange(0x10_0000, 0xF0_0000)
        self._first_comm = rng.randrange(1 << 16, 1 << 30)
        self._was_joined = False
        self._failed: StageError | None = None

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:
        version = ip_address(self.name).version
        if wants.ip not in {0, version}:
            raise UnsupportedError(f"it is reached over IPv{version}")
        if wants.service == "CM":
            with self._wire_alone(case, wants, number) as session:
                yield session
            return
        _check(case, wants)
        with self._connected(wants, number) as (wire, joined, connection):
            rep = connection.rep
            assert rep is not None, "join returns when there is one"
            shown = Shown.of(rep.private_data)
            _check_memory(case, wants, shown, rep.responder_resources)
            joined.learn(rep.local_comm_id, rep.local_qpn, rep.starting_psn)
            if shown is not None:
                joined.theirs = replace(joined.theirs, va=shown.va, key=shown.key)
            wire.case = joined
            yield Session(joined, wire, ReceivesOnly(), is_real=True)

    @contextmanager
    def _connected(
        self, wants: Wants, number: int
    ) -> Iterator[tuple[CmWire, Joined, Connection]]:
        """Have a connection, and end it. StageError where there is none to be had."""
        if self._failed is not None:
            raise self._failed  # nobody who is not there now will be for the next case
        ours, theirs = self._sides(number)
        self._reached.wire.forget()
        wire = CmWire(self._reached.wire, ours, theirs, self._rng)
        try:
            connection = join(wire, ours, theirs, wants, self._port)
        except StageError as error:
            if not self._was_joined:
                self._failed = error
            raise
        self._was_joined = True
        try:
            yield wire, Joined(wants, ours, theirs), connection
        finally:
            leave(wire, connection)

    @contextmanager
    def _wire_alone(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:
        """Have a wire for a case that says itself what connects."""
        _check_messages(case)
        if not self._was_joined:
            with self._connected(Wants(), 0):
                pass
        ours, theirs = self._sides(number)
        comm = self._first_comm + 2 * number
        joined = Joined(wants, ours, theirs, comm=comm, service=self._port)
        wire = self._reached.wire
        wire.forget()
        try:
            yield Session(joined, wire, NoApplication(), is_real=True)
        finally:
            _end(joined, wire)

    def _sides(self, number: int) -> tuple[Side, Side]:
        own, its = self._reached.ips
        our_mac, its_mac = self._reached.macs
        qp_num = self._first_qp + number
        return Side(our_mac, own, qp_num, PEER_VA, PEER_KEY), Side(its_mac, its, 0)


def _check(case: Case, wants: Wants) -> None:
    """Raise UnsupportedError for what cannot be asked for, or said there."""
    for each in fields(Wants):
        given = each.name in case.wants
        if given and each.name not in _FREE and getattr(wants, each.name) != each.default:
            raise UnsupportedError(f"a REQ does not ask for {each.name}")
    spoken = _spoken(case)
    for words in spoken:
        if is_message(words.name):
            raise UnsupportedError("messages of CM are said to make the connection")
        if "INV" in words.name:
            raise UnsupportedError(f"{words.name}: CM does not tell what may be invalidated")
    _check_receives(case, spoken)


def _check_messages(case: Case) -> None:
    """Raise UnsupportedError for a case of the manager that asks for more than a listener."""
    for step in case.steps:
        if step.kind == "!":
            raise nobody()
    if any(w.name == "SIDR_REQ" and "port" not in w.fields for w in _spoken(case)):
        raise UnsupportedError("whether a datagram service is there, nobody says")


def _check_memory(case: Case, wants: Wants, shown: Shown | None, depth: int) -> None:
    """Raise UnsupportedError for what the memory that is shown, if any, is too little for."""
    named = [words for words in _spoken(case) if _names_memory(words, wants)]
    if not named:
        return
    if shown is None:
        raise UnsupportedError(f"{named[0].name}: its REP shows no memory")
    if shown.length != wants.size:
        raise UnsupportedError(f"it shows {shown.length} bytes, the case is for {wants.size}")
    reads = sum(words.name.startswith(("READ", "FETCH", "CMP")) for words in named)
    is_asked = "max_dest_rd" in case.wants
    if depth != wants.max_dest_rd if is_asked else depth < min(reads, wants.max_dest_rd):
        raise UnsupportedError(f"it takes {depth} READs and atomics at a time")


def _spoken(case: Case) -> list[Words]:
    return [words for step in case.steps if step.kind == ">" for words in step.choices]


def _end(joined: Joined, wire: Wire) -> None:
    """End what a case of the manager may have connected, so that nothing is left there."""
    if not joined.their_comm:
        return
    wire.send(say(Words("RTU", {}), joined))  # again, or for the first time
    wire.send(say(Words("DREQ", {"tid": Relative(1)}), joined))
    give_up = wire.now() + _GOODBYE
    while (found := wire.receive(give_up)) is not None:
        with suppress(DecodeError):
            heard = hear(*found, joined)
            if heard is not None and heard.name == "DREP":
                return


def _check_receives(case: Case, spoken: list[Words]) -> None:
    """Raise UnsupportedError where the receives that are there anyway are not as wanted."""
    sizes, said = [], False
    for step in case.steps:
        said = said or step.kind == ">"
        if step.kind == "!":
            length = step.words.fields.get("length", 0)
            if step.words.name != "recv" or said or not isinstance(length, int):
                raise UnsupportedError("nobody can be asked to do something there")
            sizes.append(length)
        if step.kind.startswith("<") and any(one.name == "RNR" for one in step.choices):
            raise UnsupportedError("its receives are posted before: it is always ready")
    largest = max((int(str(w.fields.get("size", 0))) for w in spoken), default=0)
    if sizes and (len(sizes) > _RECEIVES or max(sizes) > _RECEIVE or largest > min(sizes)):
        raise UnsupportedError("number and length of its receives are its own")


def _names_memory(words: Words, wants: Wants) -> bool:
    service, dot, name = words.name.rpartition(".")
    opcode = Opcode.__members__.get(f"{service if dot else wants.service}_{name}")
    if opcode is None:
        return False
    return bool({*OPCODES[opcode].headers} & {Reth, AtomicEth})


class ReceivesOnly(NoApplication):
    """Nobody to ask; receives are posted without."""

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:  # noqa: ARG002
        if name != "recv":
            raise nobody()
        return {}


@contextmanager
def open_by_cm(address: str, interface: str, port: int) -> Iterator[CmTarget]:
    """Look for the endpoint. StageError where it is not reached, OSError without rights."""
    with open_wire(address, interface) as reached:
        yield CmTarget(reached, port, random.Random())
