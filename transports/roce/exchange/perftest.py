"""The exchange of perftest: ib_write_bw, ib_read_bw, ib_send_bw, ib_atomic_bw and their _lat.

perftest 4.5 (tag 4.5-0.17, which calls itself 6.06). Every step is one item each way, the
client's first: version, size of the cycle buffer, size of a cache line, path MTU; then the keys
of each queue pair. Both bring their queue pairs to RTS, say the keys again, and the keys of the
first as a barrier. The test runs. Bandwidth tests then say how it went. The table of `Plan` is
what the captures show.

    over TCP           text, "done" at the end
    by rdma_cm, -z     the same items as SENDs on one connection, keys as a structure
    by rdma_cm, -R     and one more connection for each queue pair of the test

Over SENDs each item is one message, received into one buffer, and they alternate: the owner
posts one receive, feeds it, and posts the next.
"""

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import NamedTuple, TypeAlias

from transports.roce.exchange.dialogue import HOLD, Dialogue, Script, Step, Want
from transports.roce.exchange.keys import NO_KEYS, Keys
from wire.codec import DecodeError, check_uint
from wire.roce.cm.codes import PATH_MTU

PORT = 18515
VERSION = "6.06"
OLDEST = (5, 70)  # what we and they talk to
DONE = b"done\0"
UD_Q_KEY = 0x11111111

_VERSION_SIZE = 16
_INT = Struct("!I")
_COUNT, _DOUBLE = Struct("!Q"), Struct("!d")
_REPORT = (_COUNT, _COUNT, _DOUBLE, _DOUBLE, _DOUBLE)  # each an item of its own
_MTU_CODES = {size: code for code, size in PATH_MTU.items()}


class Verb(Enum):
    """What a test is about."""

    WRITE = "write"
    READ = "read"
    SEND = "send"
    ATOMIC = "atomic"


class Carrier(Enum):
    """What carries the exchange."""

    TCP = "tcp"
    RDMA_CM = "rdma_cm"  # -z: the control connection only
    RDMA_CM_ALL = "rdma_cm_all"  # -R: those of the test as well


@dataclass(frozen=True, slots=True)
class Plan:
    """Which test it is. Both sides have the same, or they wait for each other for ever."""

    verb: Verb
    is_latency: bool = False
    is_bidirectional: bool = False  # -b
    carrier: Carrier = Carrier.TCP

    @property
    def barriers_before(self) -> int:
        """Barriers between the second keys and the test."""
        has_two = self.is_latency or self.is_bidirectional or self.verb is Verb.SEND
        return 2 if has_two else 1

    @property
    def reports(self) -> bool:
        """Say whether the figures are exchanged: of SENDs only where both have sent."""
        return not self.is_latency and (self.verb is not Verb.SEND or self.is_bidirectional)

    @property
    def barriers_after(self) -> tuple[int, int]:
        """Barriers before and behind the report, or where it would be."""
        if self.is_latency and self.verb is Verb.WRITE:
            return 0, 0
        if self.reports and not self.is_bidirectional:
            return 1, 1
        return 0, 1

    @property
    def says_done(self) -> bool:
        is_silent = self.is_latency and self.verb is Verb.WRITE
        return self.carrier is Carrier.TCP and not is_silent


class Report(NamedTuple):
    """How a bandwidth test went. A server of a test in one direction sends anything at all."""

    size: int = 0  # of a message
    iterations: int = 0
    peak: float = 0.0
    average: float = 0.0
    message_rate: float = 0.0  # millions a second


@dataclass(frozen=True, slots=True)
class ConnectNow:
    """Make so many connections for the test, then `proceed`. The server listens already."""

    connections: int


@dataclass(frozen=True, slots=True)
class KeysKnown:
    """The peer's queue pairs, and the smaller path MTU: bring ours to RTS, then `proceed`."""

    keys: tuple[Keys, ...]
    path_mtu: int
    cycle_buffer: int  # the larger; consecutive buffers of a small message lie that far apart
    cache_line: int


@dataclass(frozen=True, slots=True)
class RunNow:
    """Run the test, then say how it went by `ran`."""


@dataclass(frozen=True, slots=True)
class Finished:
    """All is said. `report` is the peer's, where there was one."""

    report: Report | None


PerftestEvent: TypeAlias = ConnectNow | KeysKnown | RunNow | Finished


class Perftest(Dialogue[PerftestEvent]):
    """One side of the exchange."""

    def __init__(
        self,
        plan: Plan,
        keys: tuple[Keys, ...],
        *,
        is_client: bool,
        path_mtu: int = 1024,
        cycle_buffer: int = 4096,
        cache_line: int = 64,
    ) -> None:
        """Speak for queue pairs with these `keys`; for CM's, `keys` may be given later."""
        if path_mtu not in _MTU_CODES:
            legal = ", ".join(map(str, _MTU_CODES))
            raise ValueError(f"path_mtu is {path_mtu}, legal is {legal}")
        check_uint("cycle_buffer", cycle_buffer, 31)
        check_uint("cache_line", cache_line, 31)
        if not keys:
            raise ValueError("keys is empty")
        self._plan = plan
        self._keys = keys
        self._is_client = is_client
        self._path_mtu = path_mtu
        self._cycle_buffer = cycle_buffer
        self._cache_line = cache_line
        self._report = Report()
        super().__init__()

    def set_keys(self, keys: tuple[Keys, ...]) -> None:
        """Replace our keys, as many as before: with -R they are known when connected."""
        if len(keys) != len(self._keys):
            raise ValueError(f"{len(keys)} keys, the dialogue is about {len(self._keys)}")
        self._keys = keys

    def ran(self, report: Report | None = None) -> None:
        """Go on after the test."""
        if report is not None:
            self._report = report
        self.proceed()

    def _script(self) -> Script:
        yield from self._check_version()
        cycle_buffer = yield from self._larger(self._cycle_buffer, "the cycle buffer")
        cache_line = yield from self._larger(self._cache_line, "the cache line")
        path_mtu = yield from self._smaller_mtu()
        if self._plan.carrier is Carrier.RDMA_CM_ALL:
            yield from self._trade(NO_KEYS, "a barrier")
            self._tell(ConnectNow(len(self._keys)))
            yield HOLD
            yield from self._trade(NO_KEYS, "a barrier")
        theirs = yield from self._trade_keys()
        self._tell(KeysKnown(theirs, path_mtu, cycle_buffer, cache_line))
        yield HOLD
        yield from self._trade_keys()
        yield from self._barriers(self._plan.barriers_before)
        self._tell(RunNow())
        yield HOLD
        before, behind = self._plan.barriers_after
        yield from self._barriers(before)
        report = None
        if self._plan.reports:
            report = yield from self._trade_reports()
        yield from self._barriers(behind)
        if self._plan.says_done:
            # A tool closes at once, and hears of ours: that resets the connection, and where
            # its own word has been lost on the way it does not come again.
            self._say(DONE)
            done = yield Want(len(DONE), '"done"', is_optional=True)
            if done and done != DONE:
                raise DecodeError(f'{done!r} is not "done"')
        self._tell(Finished(report))

    # -- one step each ----------------------------------------------------------------------

    def _trade(self, ours: bytes, what: str) -> Step[bytes]:
        """Exchange one item: the client's goes first."""
        if self._is_client:
            self._say(ours)
            return (yield Want(len(ours), what))
        theirs = yield Want(len(ours), what)
        self._say(ours)
        return theirs

    def _check_version(self) -> Script:
        text = VERSION.encode().ljust(_VERSION_SIZE, b"\0")
        theirs = (yield from self._trade(text, "a version")).partition(b"\0")[0]
        major, dot, minor = theirs.partition(b".")
        if not (dot and major.isdigit() and minor.isdigit()):
            raise DecodeError(f"{theirs!r} is no version of perftest")
        if (int(major), int(minor)) < OLDEST:
            oldest = "{}.{:02}".format(*OLDEST)
            raise DecodeError(f"perftest {theirs.decode()} is too old, at least {oldest}")

    def _larger(self, ours: int, what: str) -> Step[int]:
        theirs = _INT.unpack((yield from self._trade(_INT.pack(ours), what)))[0]
        if theirs >> 31:
            raise DecodeError(f"{what} is {theirs:#x}, which is negative")
        return max(ours, int(theirs))

    def _smaller_mtu(self) -> Step[int]:
        code = f"{_MTU_CODES[self._path_mtu]}\0".encode()
        theirs = yield from self._trade(code, "the path MTU")
        size = PATH_MTU.get(theirs[0] - ord("0"))
        if size is None or theirs[1]:
            raise DecodeError(f"{theirs!r} is no code of a path MTU")
        return min(self._path_mtu, size)

    def _trade_keys(self) -> Step[tuple[Keys, ...]]:
        theirs: list[Keys] = []
        for keys in self._keys:
            theirs += [(yield from self._trade_one(keys))]
        return tuple(theirs)

    def _trade_one(self, keys: Keys) -> Step[Keys]:
        if self._plan.carrier is Carrier.TCP:
            return Keys.unpack_text((yield from self._trade(keys.pack_text(), "keys")))
        return Keys.unpack((yield from self._trade(keys.pack(), "keys")))

    def _barriers(self, count: int) -> Script:
        for _ in range(count):
            yield from self._trade_one(self._keys[0])

    def _trade_reports(self) -> Step[Report]:
        """Exchange the figures; those of a server may be anything, so no float is refused."""
        ours = self._report
        values = []
        for layout, value in zip(_REPORT, ours, strict=True):
            theirs = yield from self._trade(layout.pack(value), "the report")
            values.append(layout.unpack(theirs)[0])
        return Report(*values)
