"""A switch of ours, in the simulator: ports e1 to e4, each with a network behind it.

! port name=e3 rate=100000000 faces=host        all have 100 Mbit/s, and face the fabric
! queue index=1 dscp=4,8 limit=1500 action=trim  0 to 7; those not named take what is not named
! queue index=3 dscp=24 pfc=4000,2000,20000      lossless: XOFF, XON, headroom
! queue index=1 dscp=8 ecn=2000,4000,50          marks: Kmin, Kmax, Pmax in percent
! trim size=256 dscp=48 queue=6 trimmable=4,8    what `TrimPlan` has
! sid prefix=fcbb:bb00:f::/48 behaviour=uN
! bundle ports=e3,e4                             fd00:9::/64 is behind both, frames in turn
! carrier port=e4 up=0                           the link is down, or up again
! count port=e3 queue=1                          then: = counted trimmed=1 sent=1 refused=0

Behind eN are fd00:N::/64, 10.0.N.0/24 and fcbb:bb00:N::/48. The first frame makes the switch
from what was said up to then. One that runs may be told how to trim:

! trim size=128 dscp=20 queue=5                  another way; the queues stay as they are
! trim off                                       none: what finds no room is dropped
! queue index=1 action=drop                      of this class, or again action=trim
! restart                                        it begins anew, with what it was told last
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from msgspec.structs import replace

from netem.conform.endpoint import Bare, RefusedError, UnsupportedError
from netem.conform.notation import Value
from netem.conform.sr_words import int_of
from netem.conform.sw_words import PORTS, neighbour_mac, own_mac
from netem.conform.virtual import VirtualTime, VirtualWire
from netem.impair.model import Impairment
from netem.switch.pipeline import Switch
from netem.switch.trimming import Trimmer
from netem.topology.plan import NodePlan, PortPlan
from netem.topology.switch_plan import (
    CLASSES,
    BufferPlan,
    ClassifyPlan,
    EcnPlan,
    LoadBalancing,
    NextHop,
    PfcPlan,
    QueuePlan,
    RoutePlan,
    SidPlan,
    SwitchPlan,
    TrimPlan,
)
from transports.clock import MS, Ns, S

_RATE = 100_000_000  # bit/s: a frame of 1000 bytes takes 80 us, a quantum 5.12 us
_MTU = 9000
_COUNTERS = {
    "Pkts": "packets", "DropPkts": "drops",
    "TrimPkts": "trimmed", "TrimSent": "sent", "TrimDrop": "refused",
}  # fmt: skip


@dataclass(slots=True)
class _Said:
    """What a case has said about its switch, whose ports begin with a rate."""

    rate: InitVar[int]
    queues: list[QueuePlan] = field(default_factory=lambda: [QueuePlan()] * CLASSES)
    classes: dict[int, int] = field(default_factory=dict)  # by DSCP
    trim: TrimPlan | None = None
    buffer: BufferPlan = BufferPlan()  # noqa: RUF009 - frozen
    sids: list[SidPlan] = field(default_factory=list)
    bundle: tuple[str, ...] = ()  # ports
    ports: dict[str, PortPlan] = field(init=False)

    def __post_init__(self, rate: int) -> None:
        self.ports = {
            name: PortPlan(
                name, own_mac(name).hex(":"), f"s:{name}--{name}:p0", f"{name}:p0", _MTU,
                egress=Impairment(rate=rate),
            )
            for name in PORTS
        }  # fmt: skip


class SwitchNode(Bare):
    """The switch: an Application whose requests are configuration."""

    def __init__(self, time: VirtualTime, stretch: int = 1) -> None:
        """Begin; the lines are slower by the stretch than what a case says."""
        self.time = time
        self._stretch = stretch
        self._said = _Said(_RATE // stretch)
        self._switch: Switch | None = None
        self._told: list[Mapping[str, Value]] = []

    @property
    def is_made(self) -> bool:
        """Whether all has been said that makes the switch what it is."""
        return self._switch is not None

    @property
    def switch(self) -> Switch:
        """The switch, as it was said to be."""
        if self._switch is None:
            self._switch = Switch(_plan(self._said))
        return self._switch

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        given = dict(fields)
        try:
            if name == "count":
                self._count(given)
            elif name == "carrier":
                self.switch.set_carrier(str(given["port"]), is_up=bool(given["up"]))
            elif name == "restart":
                self._switch = None
            elif self._switch is None:
                self._set_up(name, given)
            else:
                self._change(self._switch, name, given)
        except (ValueError, TypeError, KeyError) as error:
            raise RefusedError(f"{name}: {error}") from error
        return {}

    def _change(self, switch: Switch, name: str, given: dict[str, Any]) -> None:
        """Tell a switch that runs how to trim; a refusal changes nothing."""
        said = self._said
        trim, queues = said.trim, [*said.queues]
        if name == "trim":
            trim = None if "off" in given else _trim(given)
        elif name == "queue" and given.keys() == {"index", "action"}:
            index = int_of(given, "index", 0)
            queues[index] = replace(queues[index], action=given["action"])
        else:
            raise UnsupportedError(f"a switch that runs is told no {name} with {[*given]}")
        trims = [index for index, queue in enumerate(queues) if queue.action == "trim"]
        switch.set_trimming(trim, trims, self.time.at)
        said.trim, said.queues = trim, queues

    def _set_up(self, name: str, given: dict[str, Any]) -> None:
        said = self._said
        if name == "queue":
            index = int_of(given, "index", 0)
            said.classes |= dict.fromkeys(_numbers(given.pop("dscp", "")), index)
            said.queues[index] = _queue(given)
        elif name == "trim":
            plan = _trim(given)
            Trimmer(plan, "fabric", CLASSES)  # refuses what the switch would
            said.trim = plan
        elif name == "bundle":
            said.bundle = tuple(str(given["ports"]).split(","))
        elif name == "port":
            port = said.ports[str(given.pop("port"))]
            rate = int_of(given, "rate", _RATE) // self._stretch
            said.ports[port.name] = replace(port, egress=Impairment(rate=rate), **given)
        elif name == "buffer":
            said.buffer = BufferPlan(**given)
        elif name == "sid":
            said.sids.append(SidPlan(**given))
        else:
            raise UnsupportedError(f"a switch has no {name}")

    def _count(self, given: dict[str, Value]) -> None:
        """Tell the counters of a queue, or with no port those of the switch."""
        counters = self.switch.report().counters
        queue = int_of(given, "queue", 0)
        where = f"{given['port']}.q{queue}." if "port" in given else ""
        told: dict[str, Value] = {
            ours: counters.get(where + name, 0) for name, ours in _COUNTERS.items()
        }
        lost = (
            value for name, value in counters.items() if ".pg" in name and "DropPkts" in name
        )
        self._told.append(told | {"name": "counted", "lost": sum(lost)})

    def told(self) -> list[Mapping[str, Value]]:
        told, self._told = self._told, []
        return told


class SwitchWire(VirtualWire):
    """Frames to and from the switch, at the port that the MAC of its neighbour names."""

    patience: Ns = 1 * S
    quiet: Ns = 10 * MS
    delay: Ns = 0  # a frame's time is when it leaves

    def __init__(self, node: SwitchNode) -> None:
        super().__init__(node.time)
        self._node = node

    def send(self, frame: bytes) -> None:
        port = next(name for name in PORTS if neighbour_mac(name) == frame[6:12])
        self._node.switch.receive(port, frame, self.now())
        self._drain()

    def _deadline(self) -> Ns | None:
        return self._node.switch.deadline if self._node.is_made else None

    def _expire(self) -> None:
        self._node.switch.expire(self.now())

    def _drain(self) -> None:
        if not self._node.is_made:
            return
        for _, frame, meta in self._node.switch.transmit(self.now()):
            if not meta.killed:
                self._sent(bytes(frame))


def _plan(said: _Said) -> NodePlan:
    routes = [
        RoutePlan(prefix, (NextHop(name, neighbour_mac(name).hex(":")),))
        for number, name in enumerate(PORTS, 1)
        for prefix in (f"fd00:{number}::/64", f"10.0.{number}.0/24", f"fcbb:bb00:{number}::/48")
    ]
    if said.bundle:
        hops = tuple(NextHop(name, neighbour_mac(name).hex(":")) for name in said.bundle)
        routes.append(RoutePlan("fd00:9::/64", hops))
    plan = SwitchPlan(
        classify=ClassifyPlan(dscp=said.classes),
        buffer=said.buffer,
        queues=tuple(said.queues),
        trim=said.trim,
        routes=tuple(routes),
        balance=LoadBalancing(mode="spray") if said.bundle else LoadBalancing(),
        sids=tuple(said.sids),
        icmp_errors=False,
    )
    return NodePlan("s", "switch", 0, seed=1, ports=tuple(said.ports.values()), switch=plan)


def _queue(given: dict[str, Any]) -> QueuePlan:
    if "pfc" in given:
        xoff, xon, headroom = _numbers(given["pfc"])
        quanta = int_of(given, "quanta", 0xFFFF)
        given["pfc"] = PfcPlan(xoff=xoff, xon=xon, headroom=headroom, quanta=quanta)
    if "ecn" in given:
        kmin, kmax, percent = [*_numbers(given["ecn"]), 100][:3]
        given["ecn"] = EcnPlan(kmin, kmax, percent / 100)
    return QueuePlan(**given)


def _trim(given: dict[str, Any]) -> TrimPlan:
    if "trimmable" in given:
        given["trimmable"] = tuple(_numbers(given["trimmable"]))
    if "map" in given:
        pairs = (each.split(":") for each in str(given.pop("map")).split(","))
        given["dscp_map"] = {int(old): int(new) for old, new in pairs}
    return TrimPlan(**given)


def _numbers(value: Value) -> list[int]:
    return [int(each, 0) for each in str(value).split(",") if each]
