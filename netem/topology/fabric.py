"""Generators: from the few numbers of `fabric:` to nodes and links with names.

Hosts are `h0`, `h1` ... with one port a plane, `p<plane>`. Switches are called by tier, plane
and number, `t0-p0-1`; their ports are `e0`, `e1` ... in the order in which links are made: the
links below a switch first, those above it next. So a name says where in the fabric a node
stands, and the same numbers give the same names in every version.

    clos        t0-p0-0 ...   t1-p0-0 ...               each T0 of a plane to each T1 of it
    fat_tree    t0-p0-0 ...   t1-p0-0 ...   t2-p0-0 ... pods of k/2 T0 and k/2 T1, then cores
    rail        t0-p2-1 ...   t1-p0-0 ...               port p2 of the servers of group 1
    two_sites   t0-p0-0 ...   t1-p0-0 ...   t2-p0-0 ... the first half of a tier is site 0's
    ring, line, star          t0-p0-0 ...

What is written in the generator's `host_link`, `uplink`, `core_link` and `long_link` lies over
`defaults.link`, and `to_hosts` over `host_link`, in one direction.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from netem.topology.fabric_model import (
    ClosSpec,
    FabricKeys,
    FabricSpec,
    FatTreeSpec,
    LineSpec,
    RailSpec,
    RingSpec,
    StarSpec,
    TwoSitesSpec,
)
from netem.topology.link_model import NO_RATE, LinkKeys, LinkSpec, Shape
from netem.topology.model import (
    MAX_LINKS,
    MAX_NODES,
    NodeSpec,
    Place,
    TopologySpec,
)
from netem.topology.units import Ratio
from transports.clock import Ns

# Light in fibre: 4.9 to 5.0 us a kilometre, one way. topologies.md 3.
NS_PER_METRE: Ns = 5

_TWICE = "oversubscription says it; leave one of them out"
_LINK_FIELDS = LinkKeys.__struct_fields__


class FabricError(ValueError):
    """A fabric that cannot be: the key below `fabric`, and why in one line."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


class Size(NamedTuple):
    """How much a generator would make."""

    nodes: int
    links: int


def generate(fabric: FabricSpec, defaults: LinkKeys) -> TopologySpec:
    """Return the nodes and links of a fabric; raise FabricError for one that cannot be."""
    settled = _settled(fabric, defaults)
    nodes, links = _size(settled)
    if nodes > MAX_NODES:
        raise FabricError("", f"{nodes} nodes; at most {MAX_NODES}")
    if links > MAX_LINKS:
        raise FabricError("", f"{links} links; at most {MAX_LINKS}")
    builder = _Builder(settled)
    match settled:
        case ClosSpec():
            _clos(builder, settled)
        case FatTreeSpec():
            _fat_tree(builder, settled)
        case RailSpec():
            _rail(builder, settled)
        case TwoSitesSpec():
            _two_sites(builder, settled)
        case RingSpec():
            _ring(builder, settled)
        case LineSpec():
            _line(builder, settled)
        case StarSpec():
            _star(builder, settled)
    return builder.topology()


# -- what numbers leave open -----------------------------------------------------------------


def _settled(fabric: FabricSpec, defaults: LinkKeys) -> FabricSpec:
    """Return the fabric with every number given, rates and delays worked out."""
    match fabric:
        case ClosSpec():
            return _settled_clos(fabric, defaults)
        case FatTreeSpec() if fabric.k % 2:
            raise FabricError("k", f"{fabric.k} is odd; legal: 2, 4, 6, ...")
        case TwoSitesSpec():
            return _settled_sites(fabric, defaults)
        case _:
            return fabric


def _settled_clos(fabric: ClosSpec, defaults: LinkKeys) -> ClosSpec:
    """Work out the number of T1 where it is not given, or the rate of the links to them."""
    ratio = fabric.oversubscription or Ratio(1, 1)
    hosts = fabric.hosts_per_t0
    if fabric.t1 is None:
        t1, rest = divmod(hosts * ratio.other, ratio.one)
        if rest or not t1:
            raise FabricError(
                "t1",
                f"missing; {hosts} hosts for each T0 do not go into {ratio.one}:{ratio.other}"
                " with links of one rate",
            )
        return replace(fabric, t1=t1)
    if fabric.oversubscription is None:
        return fabric
    if fabric.uplink.rate is not None:
        raise FabricError("uplink.rate", _TWICE)
    rate = _host_rate(fabric, defaults) * hosts * ratio.other // (ratio.one * fabric.t1)
    return replace(fabric, uplink=replace(fabric.uplink, rate=max(1, rate)))


def _settled_sites(fabric: TwoSitesSpec, defaults: LinkKeys) -> TwoSitesSpec:
    """Work out delay and rate of the long links."""
    long_link = fabric.long_link
    if long_link.delay is not None:
        raise FabricError(
            "long_link.delay", "distance says it, 5us a km; leave one of them out"
        )
    long_link = replace(long_link, delay=fabric.distance * NS_PER_METRE)
    if (ratio := fabric.oversubscription) is not None:
        if long_link.rate is not None:
            raise FabricError("long_link.rate", _TWICE)
        hosts = fabric.t0 * fabric.hosts_per_t0
        rate = _host_rate(fabric, defaults) * hosts * ratio.other
        rate //= ratio.one * _long_links(fabric)
        long_link = replace(long_link, rate=max(1, rate))
    return replace(fabric, long_link=long_link)


def _host_rate(fabric: FabricKeys, defaults: LinkKeys) -> int:
    """Return the rate of the hosts' links, which that of others is worked out from."""
    rate = defaults.rate if fabric.host_link.rate is None else fabric.host_link.rate
    if rate is None or rate == NO_RATE:
        why = "needs a rate of the hosts' links; write host_link: {rate: ...}"
        raise FabricError("oversubscription", why)
    return rate


def _long_links(fabric: TwoSitesSpec) -> int:
    return fabric.t2 if fabric.layout == "planar" else fabric.t2 * fabric.t2


def _size(fabric: FabricSpec) -> Size:
    match fabric:
        case ClosSpec():
            t0, t1, hosts = fabric.t0, fabric.t1 or 0, fabric.t0 * fabric.hosts_per_t0
            return Size(hosts + fabric.planes * (t0 + t1), fabric.planes * (hosts + t0 * t1))
        case FatTreeSpec(k=k):
            return Size(k**3 // 4 + 5 * k * k // 4, 3 * k**3 // 4)
        case RailSpec():
            servers, t0 = fabric.groups * fabric.servers, fabric.groups * fabric.rails
            return Size(servers + t0 + fabric.t1, servers * fabric.rails + t0 * fabric.t1)
        case TwoSitesSpec():
            hosts = fabric.t0 * fabric.hosts_per_t0
            nodes = hosts + fabric.t0 + fabric.t1 + fabric.t2
            links = hosts + fabric.t0 * fabric.t1 + fabric.t1 * fabric.t2
            return Size(2 * nodes, 2 * links + _long_links(fabric))
        case RingSpec() | LineSpec():
            hosts = fabric.hosts_per_switch * fabric.switches
            return Size(fabric.switches + hosts, fabric.switches + hosts)
        case StarSpec():
            return Size(fabric.hosts + fabric.planes, fabric.hosts * fabric.planes)


# -- nodes and links -------------------------------------------------------------------------


class _Builder:
    """Nodes and links in the order in which they are made, hosts before all switches."""

    def __init__(self, fabric: FabricKeys) -> None:
        self._forwarder = fabric.forwarder
        self._host_link = fabric.host_link
        self._to_hosts = fabric.to_hosts
        self._hosts: dict[str, NodeSpec] = {}
        self._switches: dict[str, NodeSpec] = {}
        self._links: list[LinkSpec] = []
        self._next_port: dict[str, int] = {}

    def host(self) -> str:
        """Return the name of one more host."""
        name = f"h{len(self._hosts)}"
        self._hosts[name] = NodeSpec(kind="host", location="fabric")
        return name

    def switch(self, tier: int, plane: int, number: int) -> str:
        """Return the name of one more switch."""
        name = f"t{tier}-p{plane}-{number}"
        place = Place(tier, plane, number)
        self._switches[name] = NodeSpec(kind=self._forwarder, place=place, location="fabric")
        self._next_port[name] = 0
        return name

    def attach(self, host: str, plane: int, switch: str) -> None:
        """Link a host's port on a plane to the next port of a switch."""
        own, other = f"{host}:p{plane}", self._port(switch)
        directions = {} if self._to_hosts is None else {f"{other}->{own}": self._to_hosts}
        self._link(own, other, self._host_link, "host_link", directions)

    def join(self, lower: str, upper: str, keys: LinkKeys, key: str) -> None:
        """Link two switches; `key` is where the lab file has the link's keys."""
        self._link(self._port(lower), self._port(upper), keys, key)

    def _port(self, switch: str) -> str:
        number = self._next_port[switch]
        self._next_port[switch] = number + 1
        return f"{switch}:e{number}"

    def _link(
        self,
        a: str,
        b: str,
        keys: LinkKeys,
        key: str,
        directions: dict[str, Shape] | None = None,
    ) -> None:
        written = {name: getattr(keys, name) for name in _LINK_FIELDS}
        self._links.append(
            LinkSpec(
                endpoints=(a, b),
                directions=directions or {},
                location=f"fabric.{key}",
                **written,
            )
        )

    def topology(self) -> TopologySpec:
        return TopologySpec(nodes=self._hosts | self._switches, links=tuple(self._links))


class _Tiers(NamedTuple):
    """Where two tiers of switches stand, and how they are joined."""

    plane: int
    t1: int
    uplink: LinkKeys
    first: tuple[int, int] = (0, 0)  # numbers of the first T0 and of the first T1


def _two_tiers(builder: _Builder, hosts: list[list[str]], tiers: _Tiers) -> list[str]:
    """Make T0s above the lists of hosts, and T1s above them; return the T1s."""
    plane, t1, uplink, first = tiers
    lower = [builder.switch(0, plane, first[0] + i) for i in range(len(hosts))]
    for switch, below in zip(lower, hosts, strict=True):
        for host in below:
            builder.attach(host, plane, switch)
    upper = [builder.switch(1, plane, first[1] + i) for i in range(t1)]
    for switch in lower:
        for above in upper:
            builder.join(switch, above, uplink, "uplink")
    return upper


def _racks(builder: _Builder, racks: int, hosts_each: int) -> list[list[str]]:
    return [[builder.host() for _ in range(hosts_each)] for _ in range(racks)]


def _clos(builder: _Builder, fabric: ClosSpec) -> None:
    hosts = _racks(builder, fabric.t0, fabric.hosts_per_t0)
    for plane in range(fabric.planes):
        _two_tiers(builder, hosts, _Tiers(plane, fabric.t1 or 0, fabric.uplink))


def _fat_tree(builder: _Builder, fabric: FatTreeSpec) -> None:
    """Join T1 number i of each pod to the same k/2 cores: each core has a link to each pod."""
    half = fabric.k // 2
    hosts = _racks(builder, fabric.k * half, half)
    pods = [
        _two_tiers(
            builder,
            hosts[pod * half : (pod + 1) * half],
            _Tiers(0, half, fabric.uplink, (pod * half, pod * half)),
        )
        for pod in range(fabric.k)
    ]
    cores = [builder.switch(2, 0, i) for i in range(half * half)]
    for pod in pods:
        for i, switch in enumerate(pod):
            for core in cores[i * half : (i + 1) * half]:
                builder.join(switch, core, fabric.core_link, "core_link")


def _rail(builder: _Builder, fabric: RailSpec) -> None:
    groups = _racks(builder, fabric.groups, fabric.servers)
    leaves = []
    for rail in range(fabric.rails):
        for number, servers in enumerate(groups):
            leaf = builder.switch(0, rail, number)
            leaves.append(leaf)
            for server in servers:
                builder.attach(server, rail, leaf)
    spines = [builder.switch(1, 0, i) for i in range(fabric.t1)]
    for leaf in leaves:
        for spine in spines:
            builder.join(leaf, spine, fabric.uplink, "uplink")


def _two_sites(builder: _Builder, fabric: TwoSitesSpec) -> None:
    sites = [_racks(builder, fabric.t0, fabric.hosts_per_t0) for _ in range(2)]
    borders = []
    for site, hosts in enumerate(sites):
        first = site * fabric.t0, site * fabric.t1
        upper = _two_tiers(builder, hosts, _Tiers(0, fabric.t1, fabric.uplink, first))
        border = [builder.switch(2, 0, site * fabric.t2 + i) for i in range(fabric.t2)]
        for switch in upper:
            for above in border:
                builder.join(switch, above, fabric.core_link, "core_link")
        borders.append(border)
    for one, other in _across(fabric, *borders):
        builder.join(one, other, fabric.long_link, "long_link")


def _across(
    fabric: TwoSitesSpec, here: list[str], there: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield which aggregation switches long links join: one to one, or each to each."""
    if fabric.layout == "planar":
        yield from zip(here, there, strict=True)
    else:
        yield from ((one, other) for one in here for other in there)


def _ring(builder: _Builder, fabric: RingSpec) -> None:
    switches = _row(builder, fabric, range(fabric.switches))
    for one, other in zip(switches, [*switches[1:], switches[0]], strict=True):
        builder.join(one, other, fabric.uplink, "uplink")


def _line(builder: _Builder, fabric: LineSpec) -> None:
    last = fabric.switches - 1
    with_hosts = range(fabric.switches) if fabric.hosts_at == "each" else (0, last)
    switches = _row(builder, fabric, with_hosts)
    for one, other in pairwise(switches):
        builder.join(one, other, fabric.uplink, "uplink")


def _row(
    builder: _Builder, fabric: RingSpec | LineSpec, with_hosts: range | tuple[int, int]
) -> list[str]:
    """Make the switches of one tier; those whose number is in `with_hosts` get hosts."""
    switches = []
    for number in range(fabric.switches):
        switches.append(builder.switch(0, 0, number))
        if number in with_hosts:
            for _ in range(fabric.hosts_per_switch):
                builder.attach(builder.host(), 0, switches[-1])
    return switches


def _star(builder: _Builder, fabric: StarSpec) -> None:
    hosts = [builder.host() for _ in range(fabric.hosts)]
    for plane in range(fabric.planes):
        switch = builder.switch(0, plane, 0)
        for host in hosts:
            builder.attach(host, plane, switch)
