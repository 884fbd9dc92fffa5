"""An address as a target, joined by the communication manager: `--by cm`.

A server of rdma_cm listens there; for each case the suite is a client that connects. The
manager names the queue pair, and no memory: what needs a key of the endpoint is unsupported.
What is not seen but agreed, as with rdma_cm: receives are posted before a request is accepted,
here at least two of 4096 bytes. Where an RNR NAK shows that none was, that is unsupported, too.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
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
)
from netem.conform.foreign import NoApplication, Reached, nobody, open_wire
from netem.conform.notation import Case, Value, Words
from wire.roce.eths import AtomicEth, Reth
from wire.roce.opcodes import OPCODES, Opcode

# What a REQ asks for, or what does not matter to requests that nobody answers late.
_FREE = {"ip", "sq_psn", "mtu", "min_rnr", "timeout", "retry", "rnr_retry", "max_rd"}
_RECEIVE = 4096  # bytes of each that is posted, at least
_RECEIVES = 2


class CmTarget:
    """An endpoint at an address. Made by `open_by_cm`."""

    def __init__(self, reached: Reached, port: int, rng: random.Random) -> None:
        self.name = reached.address
        self._reached = reached
        self._port = port
        self._rng = rng
        # Another in each run: a peer may still hold connections of a run that was cut short.
        self._first_qp = rng.randrange(0x10_0000, 0xF0_0000)
        self._was_joined = False
        self._failed: StageError | None = None

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:
        self._check(case, wants)
        if self._failed is not None:
            raise self._failed  # nobody who is not there now will be for the next case
        own, its = self._reached.ips
        our_mac, its_mac = self._reached.macs
        ours = Side(our_mac, own, self._first_qp + number, PEER_VA, PEER_KEY)
        theirs = Side(its_mac, its, 0)
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
            joined = Joined(wants, ours, theirs)
            rep = connection.rep
            assert rep is not None, "join returns when there is one"
            joined.learn(rep.local_comm_id, rep.local_qpn, rep.starting_psn)
            wire.case = joined
            yield Session(joined, wire, ReceivesOnly(), is_real=True)
        finally:
            leave(wire, connection)

    def _check(self, case: Case, wants: Wants) -> None:
        """Raise UnsupportedError for what cannot be agreed on, asked for, or said there."""
        version = ip_address(self.name).version
        if wants.ip not in {0, version}:
            raise UnsupportedError(f"it is reached over IPv{version}")
        for each in fields(Wants):
            given = each.name in case.wants
            if given and each.name not in _FREE and getattr(wants, each.name) != each.default:
                raise UnsupportedError(f"a REQ does not ask for {each.name}")
        spoken = [words for step in case.steps if step.kind == ">" for words in step.choices]
        for words in spoken:
            if is_message(words.name):
                raise UnsupportedError("messages of CM are said to make the connection")
            if _names_memory(words, wants):
                raise UnsupportedError(f"{words.name}: CM does not tell the endpoint's memory")
        _check_receives(case, spoken)


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
    headers = {*OPCODES[opcode].headers}
    return bool(headers & {Reth, AtomicEth}) or "INV" in name


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
