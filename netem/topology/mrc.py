"""MRC connections: the planes that two hosts meet on, their paths, and how long a round takes.

A queue pair of MRC takes every pair of ports of its two hosts, a plane each. Its entropy values
are drawn from the seed: for each plane an equal share, over as many ways as leave the switch
before the source (all of them lead to the target); those beyond the number of ways differ in
salt, which a switch that hashes sees, too.

Where the lab leaves them open, the base RTT is worked out for a full packet there and a SACK
back over idle links, and the rate is that of the source's ports together.
"""

from collections.abc import Callable, Iterator, Mapping

from netem.impair.model import Impairment
from netem.topology import draw
from netem.topology.dilation import Need
from netem.topology.headroom import REACTION
from netem.topology.model import Family
from netem.topology.mrc_ways import template
from netem.topology.mtu import Parts, mtu_sum, usid_parts
from netem.topology.names import plane_of
from netem.topology.plan import MrcPlan, MrcReadings, MrcTemplate
from netem.topology.routing import Routing
from netem.topology.srv6 import Srv6
from netem.topology.transport_model import MrcSpec
from netem.topology.units import format_time
from netem.topology.wiring import node_of
from netem.topology.workload import Pair
from transports.clock import Ns, S
from transports.mrc.profiles import LAYOUTS, MAX_PLANES
from transports.mrc.profiles import draw as draw_paths

SACK_FRAME = 14 + 100  # bytes, over IPv6
# Ours: what each hop takes in the simulator beside its link, and what a switch's queue may add
# before anybody is to call it congestion.
HOP: Ns = 500
SLACK = 1.1
LATE = 5  # processes on the way of a packet and its answer that may be late


class MrcPlans:
    """Makes the plans of the MRC connections of one lab; what it is given is by port."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        egresses: Mapping[str, Impairment],
        routing: Routing,
        srv6: Srv6,
        seed: int,
    ) -> None:
        self._srv6 = srv6
        self._known: dict[Pair, MrcTemplate] = {}
        self._addresses = addresses
        self._egresses = egresses
        self._routing = routing
        self._seed = seed

    def plan(self, flow: str, spec: MrcSpec, pairs: tuple[Pair, ...]) -> MrcPlan:
        """Return the requester's side of a connection over `pairs` of ports."""
        planes = [port_plane(pair.source) for pair in pairs]
        width = max(planes) + 1
        local: list[str | None] = [None] * width
        remote: list[str | None] = [None] * width
        for plane, pair in zip(planes, pairs, strict=True):
            local[plane] = self._addresses[pair.source]
            remote[plane] = self._addresses[pair.target]
        rng = draw.stream(self._seed, f"paths/{flow}")
        ways = min(self._ways_up(pair) for pair in pairs)
        evs = draw_paths(LAYOUTS[spec.ev_format], planes, ways, spec.paths, rng)
        there, back = self._templates(spec, pairs), self._templates(spec, reverse(pairs))
        rate = sum(self._egresses[pair.source].rate or 0 for pair in pairs)
        return MrcPlan(
            local=tuple(local),
            remote=tuple(remote),
            active=evs.active,
            backup=evs.backup,
            ev_format=spec.ev_format,
            there=there,
            back=back,
            readings=spec.both_readings[0],
            setup=spec.connect == "setup",
            base_rtt=self.base_rtt(spec, pairs),
            rate=spec.rate or rate,
            linear=spec.linear,
            exponential=spec.exponential,
            min_active=spec.min_active,
            mpr=spec.mpr,
            dynamic_mpr=spec.dynamic_mpr,
            max_wimm=spec.max_wimm,
            trimming=spec.trimming,
            early_loss=spec.early_loss,
            quick_adapt=spec.quick_adapt,
            port_updates=spec.port_updates,
            pinned=None if spec.pin is None else min(evs.active, key=_place(spec)),
            pinned_until=spec.pin or 0,
        )

    def reaction_need(self, name: str, pairs: tuple[Pair, ...], spec: MrcSpec) -> Need:
        """Return how slow a lab must run for answers to come in about a round trip.

        Processes that are late look like queues, and a late answer like a lost packet.
        """
        rtt = self.base_rtt(spec, pairs)
        lateness = LATE * REACTION / rtt
        return Need(lateness, f"hosts of transport {name}", "answer")

    def _ways_up(self, pair: Pair) -> int:
        """Return how many ways there are from the switch before the source; 1 without one."""
        found = [
            len(self._routing.hops(node_of(step.receiver), pair.target))
            for step in self._routing.gateways(pair.source)
        ]
        return max(found, default=1) or 1

    def _templates(
        self, spec: MrcSpec, pairs: tuple[Pair, ...]
    ) -> tuple[MrcTemplate | None, ...]:
        """Return the template of each plane; nothing where segments do not lead."""
        if spec.ev_format != "srv6":
            return ()
        found = {}
        for pair in pairs:
            if pair not in self._known:
                self._known[pair] = template(self._srv6, self._routing, pair)
            found[port_plane(pair.source)] = self._known[pair]
        return tuple(found.get(plane) for plane in range(max(found) + 1))

    def base_rtt(self, spec: MrcSpec, pairs: tuple[Pair, ...]) -> Ns:
        """Return the base RTT that the lab gives, or that of the slowest plane."""
        if spec.base_rtt is not None:
            return spec.base_rtt
        sizes = [len(one.slots) for one in self._templates(spec, pairs) if one is not None]
        around = usid_parts(max(sizes)) if sizes else ()
        return max(self._base_rtt(pair, spec.mtu, around) for pair in pairs)

    def _base_rtt(self, pair: Pair, mtu: int, around: Parts) -> Ns:
        """Return the time of a full packet there and a SACK back, in whole 100 ns."""
        family = "ipv6" if ":" in self._addresses[pair.source] else "ipv4"
        frame = mtu_sum(mtu, family, kind="mrc", around=around).frame
        outer = sum(size for _, size in around)
        there = self._one_way(self._routing.share(pair.source, pair.target), frame)
        back = self._one_way(self._routing.share(pair.target, pair.source), SACK_FRAME + outer)
        return round(SLACK * (there + back) / 100) * 100

    def _one_way(self, share: Mapping[str, float], frame: int) -> float:
        """Return the time over the mean of all ways."""
        total = 0.0
        for port, part in share.items():
            given = self._egresses[port]
            wire = (frame + given.overhead) * 8 * S / given.rate if given.rate else 0.0
            total += part * (given.delay + wire + HOP)
        return total


def problems(
    spec: MrcSpec,
    where: str,
    pairs: tuple[Pair, ...],
    families: set[Family],
    rates: set[int | None],
) -> Iterator[str]:
    """Yield why a connection over `pairs` of ports cannot be."""
    planes = [port_plane(pair.source) for pair in pairs]
    if max(planes) >= MAX_PLANES:
        yield f"{where}: port p{max(planes)}; MRC has planes p0 to p{MAX_PLANES - 1}"
    for one, other in pairs:
        if port_plane(one) != port_plane(other):
            yield f"{where}: {one} meets {other}: two planes, and a path of MRC has one"
            break
    if "ipv4" in families and spec.ev_format != "udp16":
        yield f"{where}.ev_format: IPv4 has room for udp16 only; write it, or family: ipv6"
    splits = {readings.ev_split for readings in spec.both_readings}
    if spec.ev_format == "udp16" and "label_low" in splits:
        yield f"{where}.readings.ev_split: udp16 is in the UDP source port alone; leave it out"
    if spec.rate is None and None in rates:
        yield f"{where}.rate: a link of the hosts has no rate; write rate, or one there"
    if len(planes) > spec.paths:
        yield f"{where}.paths: {spec.paths} for {len(planes)} planes; each needs one"


def of_nic(readings: MrcReadings) -> tuple[object, ...]:
    """Return the readings that all queue pairs of a NIC share: what is in its packets."""
    return (
        readings.bth_bit_order, readings.ev_split, readings.eeth_op_shift, readings.icrc,
        readings.port_mask_base,
    )  # fmt: skip


def reverse(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """Return the pairs from the other end."""
    return tuple(Pair(pair.target, pair.source) for pair in pairs)


def _place(spec: MrcSpec) -> Callable[[int], tuple[int, int]]:
    """Return what orders entropy values by plane, and by way within a plane."""
    layout = LAYOUTS[spec.ev_format]
    return lambda ev: (layout.plane_of(ev), layout.read(ev, "hop0"))


def port_plane(port: str) -> int:
    """Return the plane of a host's port like "h0:p1"."""
    return plane_of(port.partition(":")[2])


def described(plan: MrcPlan) -> str:
    """Return the planes and paths of a connection in words."""
    planes = sum(address is not None for address in plan.local)
    return (
        f"{planes} planes, {len(plan.active)} paths and {len(plan.backup)} spares"
        f" ({plan.ev_format}), base RTT {format_time(plan.base_rtt)}"
    )
