"""How much slower than real time a lab must run so that this host can carry its packets.

Emulated time is wall time divided by the dilation D: rates are divided by it, so a link of
400 Gbit/s with D = 1000 carries 400 Mbit/s of wall time. D is the smallest of 1, 2, 5, 10, 20,
50 ... at which the processes together use at most `SHARE` of the cores and none uses more than
`SHARE` of one.

The load of a process is packets per second times the cost of a packet. Packets per second are
worked out as if every flow filled the slowest link with a rate on its way, in the direction of
its data, with packets of the path MTU; acknowledgements are the data's number divided by
ACK_EVERY, since a requester asks for one so often. Where a flow may take several ways, it takes
a part of each. Flows that share a slowest link share its rate, and no link carries more than
its own. Flows that meet no rate take what the host gives: they ask for no dilation, and a lab
without any rate has D = 1.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

SHARE = 0.6  # of a core, and of all cores: the rest is for the kernel and for others
ACK_EVERY = 16  # data packets for one acknowledgement; a few for short messages, 32 for long
HIGHEST = 1_000_000


class Calibration(NamedTuple):
    """What a packet costs on this host, in wall nanoseconds, and how many cores there are.

    The figures are of Python 3.11 on a core of a shared machine, for packets of 1 KiB on a link
    with a rate (so without trains), spool on. They have to be right within a factor of two.
    """

    cores: int = 2
    frame_sent: int = 30_000  # queue pair, egress, socket, spool
    frame_received: int = 15_000
    datagram_sent: int = 25_000
    datagram_received: int = 12_000
    bridge: int = 2_000  # the kernel's work for one frame through a bridge or a router
    switch_received: int = 8_000  # a switch of ours: forwarding, queue ...
    switch_sent: int = 12_000  # ... and marks, socket, spool
    wire: int = 30_000  # a wire process, one frame in and out
    tunnel_received: int = 15_000  # a gateway: TUN, cipher, UDP socket; half for each side
    tunnel_sent: int = 15_000


DEFAULT_CALIBRATION = Calibration()


class Course(NamedTuple):
    """The ways of one flow: which part of its data, and of what answers it, each port sends."""

    data: Mapping[str, float]
    acks: Mapping[str, float]
    frame: int  # bytes of a full packet


class Stream(NamedTuple):
    """Packets per emulated second from one node to the next."""

    sender: str
    receiver: str
    packets: float


def port_loads(courses: Iterable[Course], rates: Mapping[str, int | None]) -> dict[str, float]:
    """Return the packets per emulated second that each port may have to send."""
    limits: dict[str, float] = {}  # of ports with a rate, by the smallest full packet
    through: dict[str, dict[str, float]] = {}  # port -> slowest port of a flow -> packets
    for course in courses:
        data = course.data
        rated = {port: rate for port in data if (rate := rates[port]) is not None}
        if not rated:
            continue
        slowest = min(rated, key=lambda port: rated[port] / data[port])
        packets = packets_per_second(rated[slowest], course.frame) / data[slowest]
        for port, rate in rated.items():
            limits[port] = max(limits.get(port, 0.0), packets_per_second(rate, course.frame))
        for port, part in data.items():
            flows = through.setdefault(port, {})
            flows[slowest] = max(flows.get(slowest, 0.0), packets * part)
        answers = f"{slowest} acks"
        for port, part in course.acks.items():
            flows = through.setdefault(port, {})
            flows[answers] = max(flows.get(answers, 0.0), packets * part / ACK_EVERY)
    return {
        port: min(sum(flows.values()), limits.get(port, inf)) for port, flows in through.items()
    }


def packets_per_second(rate: int, frame: int) -> float:
    """Return how many frames of so many bytes fill a link."""
    return rate / (8 * frame)


class Need(NamedTuple):
    """How much slower than real time a host must run a lab, and what asks for most."""

    factor: float
    who: str  # "t0-p0-0", or "all nodes together"
    reaction: str = ""  # what is to be done in time, see netem.topology.headroom

    @property
    def rounded(self) -> int:
        """The dilation that `auto` means."""
        return next(step for step in _steps() if step >= self.factor or step >= HIGHEST)

    def shortfall(self, dilation: int) -> str:
        """Say what this host cannot do at a smaller dilation."""
        times = f"{self.factor / dilation:.1f} times"
        if self.reaction:
            return (
                f"{self.who} would have to {self.reaction} {times} sooner than it can promise"
            )
        return f"with full links {self.who} would take {times} what it can give"


def need(streams: Iterable[Stream], kinds: Mapping[str, str], calibration: Calibration) -> Need:
    """Return the least factor at which the host can carry the streams.

    `kinds` says of each node how it handles a packet: frame, datagram, bridge, wire, switch or
    tunnel.
    """
    sent = {
        "frame": calibration.frame_sent,
        "datagram": calibration.datagram_sent,
        "bridge": calibration.bridge,
        "wire": calibration.wire,
        "switch": calibration.switch_sent,
        "tunnel": calibration.tunnel_sent,
    }
    received = {
        "frame": calibration.frame_received,
        "datagram": calibration.datagram_received,
        "bridge": 0,
        "wire": 0,
        "switch": calibration.switch_received,
        "tunnel": calibration.tunnel_received,
    }
    load = dict.fromkeys(kinds, 0.0)
    for stream in streams:
        load[stream.sender] += stream.packets * sent[kinds[stream.sender]] / 1e9
        load[stream.receiver] += stream.packets * received[kinds[stream.receiver]] / 1e9
    own = [node for node, kind in kinds.items() if kind != "bridge"]
    busiest = max(own, key=lambda node: load[node], default="")
    alone = Need(load.get(busiest, 0.0) / SHARE, busiest)
    together = Need(sum(load.values()) / (SHARE * calibration.cores), "all nodes together")
    return max(alone, together, key=lambda one: one.factor)


def dilation(
    streams: Iterable[Stream], kinds: Mapping[str, str], calibration: Calibration
) -> int:
    """Return the smallest round dilation at which the host can carry the streams."""
    return need(streams, kinds, calibration).rounded


def _steps() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 ..."""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10
