"""What the suite wants of an endpoint under test, and how it reaches one.

A `Target` gives one `Session` per case: a wire to a queue pair that is connected with the
suite's, and, as far as the endpoint can, its application: what posts requests there, and says
what it was told. Verdicts are drawn from what is on the wire; what an application tells is
looked at where there is one.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from netem.conform.mrc_paths import MrcHeld
from netem.conform.notation import Case, Value
from netem.conform.wg_words import WgPeer
from transports.clock import Ns

MACS = (
    bytes.fromhex("020000000001"),
    bytes.fromhex("020000000002"),
)  # the suite's, the endpoint's, where both are ours to choose
PEER_VA, PEER_KEY = 0x5000_0000, 0x7700  # of the memory that the suite shows
LISTENS = 7174  # port of rdma_cm: rping's


class UnsupportedError(Exception):
    """The endpoint cannot be brought to do what a case asks of it."""


class RefusedError(Exception):
    """The endpoint's application was refused what it asked for; may be what is wanted."""


class StageError(Exception):
    """The endpoint was not reached: at which stage, and the bytes seen there."""

    def __init__(self, stage: str, what: str, seen: bytes = b"") -> None:
        bytes_seen = f"; bytes seen: {seen[:64].hex(' ')}" if seen else ""
        super().__init__(f"{stage}: {what}{bytes_seen}")


class EndedError(Exception):
    """The endpoint has come to an end by what a case said to it. `last_words`, a line each."""

    def __init__(self, what: str, last_words: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.last_words = last_words


@dataclass(frozen=True, slots=True)
class Wants:
    """What a case wants the connection to be, in numbers of verbs; times are codes."""

    service: str = "RC"
    ip: int = 0  # 0: either
    state: str = "RTS"
    access: str = "write,read,atomic"
    rq_psn: int = 0x5000  # the endpoint expects it first
    sq_psn: int = 0x9000  # the endpoint sends it first
    mtu: int = 1024
    timeout: int = 18
    retry: int = 7
    rnr_retry: int = 7
    min_rnr: int = 12
    max_dest_rd: int = 4
    max_rd: int = 4
    credits: int = 0
    dcqcn: int = 0  # notifies and reacts, if the endpoint can
    rate: int = 0  # bit/s of its line, with clocks of DCQCN that packets at it can show
    qkey: int = 0x11111111
    size: int = 65536  # bytes of the region that the peer may use
    msn: int = 0  # messages that it has counted before
    window: int = 0  # PSNs that it may have open; 0: as many as it likes
    landing: int = 1 << 17  # bytes that its READs and receives may be placed in
    planes: int = 1  # MRC: ports of both ends
    paths: int = 4  # MRC: EVs in use on each plane
    backups: int = 0  # MRC: EVs of each plane that stand in for others
    wimm: int = 4  # MRC: WRITEs with immediate that the peer takes at a time
    probes: int = 1  # MRC; 0: those of the endpoint are passed over
    linear: int = 7  # MRC: retries at the same interval
    exponential: int = 7  # MRC: and at twice the last
    load: int = 0  # WG: each message of a handshake finds the endpoint under load

    @classmethod
    def of(cls, given: Mapping[str, Value]) -> "Wants":
        """Return what a case's `with` lines say. ValueError for a name that is not known."""
        unknown = given.keys() - {*cls.__slots__}
        if unknown:
            names = ", ".join(cls.__slots__)
            raise ValueError(f"with {', '.join(sorted(unknown))} is unknown, legal is {names}")
        return cls(**given)  # type: ignore[arg-type] # values are checked by who uses them


@dataclass(frozen=True, slots=True)
class Side:
    """One end of the connection as the other must know it."""

    mac: bytes
    ip: bytes
    qp_num: int
    va: int = 0
    key: int = 0


@dataclass(slots=True)
class Joined:
    """A connection: both ends, and what counts from where. PSNs are those of `wants`."""

    wants: Wants
    ours: Side  # the suite's
    theirs: Side  # the endpoint's
    keys: dict[str, int] = field(default_factory=dict)  # of further regions, by name
    port: int = 0  # UDP source port of the endpoint's packet before; 0: none yet
    mrc: MrcHeld = field(default_factory=MrcHeld)  # what lines may refer to
    peer: WgPeer = field(default_factory=WgPeer)  # the suite's end of a tunnel
    wrap: Callable[[bytes, int], bytes] = lambda payload, _port: payload  # around its datagrams
    said: bytes = b""  # the frame that the suite sent last
    last: Mapping[str, int | str] = field(default_factory=dict)  # fields of what came last
    comm: int = 0  # communication ID of the suite's end
    their_comm: int = 0  # of the endpoint's, when it is known
    service: int = LISTENS  # port of rdma_cm on which the endpoint listens

    def learn(self, comm: int, qp_num: int, psn: int) -> None:
        """Note what a REQ or a REP of the endpoint says: the PSN is the first that we send."""
        self.their_comm = comm
        self.theirs = replace(self.theirs, qp_num=qp_num)
        self.wants = replace(self.wants, rq_psn=psn)


class Wire(Protocol):
    """Whole frames, in and out, and the time that they live in."""

    patience: Ns  # how long to wait for what must come
    quiet: Ns  # how long nothing must come for silence

    def now(self) -> Ns: ...

    def send(self, frame: bytes) -> None: ...

    def receive(self, until: Ns) -> tuple[Ns, bytes] | None:
        """Return the next frame and when it came; None where none has come by `until`."""

    def lateness(self) -> Ns:
        """Return by how much a time told here may be late."""


class Application(Protocol):
    """What holds the endpoint's queue pair. Each method may raise UnsupportedError."""

    @property
    def untold(self) -> frozenset[str]:
        """Return what it is never told: names of events, and `completion.FIELD`."""

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:
        """Make memory and a queue pair in RESET; return `qp_num`, `va`, `key`."""

    def connect(self, peer: Mapping[str, int | str]) -> None:
        """Take the queue pair to the state wanted, connected with `peer`."""

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        """Do one thing; RefusedError where that is refused."""

    def told(self) -> list[Mapping[str, Value]]:
        """Return what the application was told since the last call."""

    def memory(self, at: int, size: int) -> bytes:
        """Return bytes of the region that the peer may use."""

    def close(self) -> None:
        """Let go of what `open` made."""


class Bare:
    """What every Application does alike that has no queue pair and no memory: nothing."""

    untold = frozenset({"completion", "COMM_EST", "SQ_DRAINED"})

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:  # noqa: ARG002
        return {}

    def connect(self, peer: Mapping[str, int | str]) -> None:
        """Be connected as it is."""

    def told(self) -> list[Mapping[str, Value]]:
        return []

    def memory(self, at: int, size: int) -> bytes:  # noqa: ARG002
        raise UnsupportedError("it has no memory to show")

    def close(self) -> None:
        """Hold nothing."""


@dataclass(slots=True)
class Session:
    """One connection, for one case."""

    joined: Joined
    wire: Wire
    application: Application
    is_real: bool  # time passes by itself
    stretch: float = 1.0  # all that a case says about time takes so many times as long here
    hurry: Ns | None = None  # where we were later than that, a failure says nothing


class Target(Protocol):
    """An endpoint under test."""

    name: str

    def session(self, case: Case, wants: Wants, number: int) -> AbstractContextManager[Session]:
        """Join a new queue pair; `number` is another in each case of a run.

        UnsupportedError where the endpoint cannot be what is wanted, StageError where it could
        not be joined.
        """
