"""The overlay of a lab: which nodes a gateway stands for, its keys, its routes, its MTU.

A site is what reaches its gateway without crossing another site's. Whatever reaches two
gateways so is between the sites: the underlay. A gateway's routes to everything in other sites
lead into its tunnel, and all others stay as they are; so packets are led to a gateway by the
routes that they would have had anyway.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from netem.topology import draw
from netem.topology.model import Lab
from netem.topology.overlay_model import GENERATED, OverlaySpec, SiteSpec
from netem.topology.overlay_plan import (
    MovePlan,
    TunnelLimits,
    TunnelPeerPlan,
    TunnelPlan,
)
from netem.topology.routing import Routing
from netem.topology.settings import link_mtu
from netem.topology.wiring import Wiring, node_of
from transports.clock import Ns
from transports.overlay.keys import PrivateKey, from_base64, to_base64
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6
from wire.udp import UDP
from wire.wireguard import MIN_TRANSPORT_SIZE

MAX_MTU = 65535 - IPV6.size - UDP.size - MIN_TRANSPORT_SIZE


class Narrow(NamedTuple):
    """The smallest link between two gateways."""

    mtu: int
    link: str


def overhead(spec: OverlaySpec) -> int:
    """Return what a tunnel adds to a packet."""
    outer = IPV4.size if spec.family == "ipv4" else IPV6.size
    return outer + UDP.size + MIN_TRANSPORT_SIZE


def limits_of(spec: OverlaySpec) -> TunnelLimits:
    """Return the paper's limits with what the lab says instead."""
    names = (key for key in TunnelLimits.__struct_fields__)
    written = {name: getattr(spec.timers, name) for name in names}
    return TunnelLimits(**{name: one for name, one in written.items() if one is not None})


def private_key(lab: Lab, name: str, site: SiteSpec) -> PrivateKey:
    """Return a site's key: the one that is written, or one of its own from the seed."""
    if site.private_key is not None:
        return PrivateKey(from_base64(site.private_key))
    return PrivateKey(_drawn(lab.seed, f"overlay/{name}"))


class Overlay:
    """The tunnels of one lab whose overlay has been found right."""

    def __init__(self, lab: Lab, wiring: Wiring, routing: Routing) -> None:
        assert lab.overlay is not None
        self._lab = lab
        self._wiring = wiring
        self._routing = routing
        self.spec = lab.overlay
        self.gateways = {site.gateway: name for name, site in self.spec.sites.items()}
        self.sites, self.between = found_sites(wiring, self.gateways)  # by node; nodes
        self._keys = {n: private_key(lab, n, s) for n, s in self.spec.sites.items()}
        self._numbers = {name: number for number, name in enumerate(self.spec.sites)}

    def interface(self, gateway: str) -> str:
        """Return what a gateway's tunnel is called: unique in the lab, as `wg` wants it."""
        return f"wg{self._numbers[self.gateways[gateway]]}"

    def crosses(self, source: str, target: str) -> bool:
        """Say whether packets between two nodes go through tunnels."""
        one, other = self.sites.get(source), self.sites.get(target)
        return one is not None and other is not None and one != other

    def addresses(self, site: str) -> tuple[str, str]:
        """Return those of the interface at a site's gateway."""
        number = self._numbers[site] + 1
        return f"fd00:fffd::{number:x}", f"10.77.0.{number}"

    @property
    def mtu(self) -> int:
        """The MTU of all tunnels: what is written, or what fits the smallest link."""
        if self.spec.mtu is not None:
            return self.spec.mtu
        narrow = self.narrowest()
        return min(narrow.mtu - overhead(self.spec), MAX_MTU)

    @property
    def why_mtu(self) -> str:
        """Say in words where the MTU comes from."""
        if self.spec.mtu is not None:
            return "as written"
        narrow = self.narrowest()
        return f"{narrow.mtu} of {narrow.link} less {overhead(self.spec)}"

    def narrowest(self) -> Narrow:
        """Return the smallest link on the ways between gateways."""
        ways = [
            narrow(self._lab, self._wiring, self._routing, one, other)
            for one in self.gateways
            for other in self.gateways
            if one != other
        ]
        return min(ways)

    def plan(
        self,
        gateway: str,
        outer: Mapping[str, str],
        inner: Mapping[str, tuple[str, ...]],
    ) -> TunnelPlan:
        """Return the tunnel of a gateway.

        `outer` has the address at which each gateway speaks, `inner` all prefixes of each node.
        """
        spec, own = self.spec, self.gateways[gateway]
        site = spec.sites[own]
        peers = tuple(
            self._peer(own, name, other, outer[other.gateway], inner)
            for name, other in spec.sites.items()
            if name != own
        )
        return TunnelPlan(
            interface=self.interface(gateway),
            site=own,
            private_key=to_base64(self._keys[own].reveal()),
            listen_port=self._port(site),
            mtu=self.mtu,
            why_mtu=self.why_mtu,
            addresses=self.addresses(own),
            peers=peers,
            ecn=spec.ecn,
            copy_dscp=spec.dscp == "copy",
            fragments=spec.df == "clear",
            limits=limits_of(spec),
            secrets=spec.secrets,
            moves=tuple(MovePlan(move.at, move.port) for move in site.moves),
        )

    def prefixes(self, site: str, inner: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return what is behind a site's gateway, the gateway's own end of the tunnel first."""
        v6, v4 = self.addresses(site)
        behind = (
            prefix
            for node, of in self.sites.items()
            if of == site and node not in self.gateways
            for prefix in inner.get(node, ())
        )
        return (f"{v6}/128", f"{v4}/32", *behind)

    def _peer(
        self,
        own: str,
        name: str,
        other: SiteSpec,
        address: str,
        inner: Mapping[str, tuple[str, ...]],
    ) -> TunnelPeerPlan:
        host = f"[{address}]" if ":" in address else address
        known = other.endpoint == "known"
        mine = self.spec.sites[own].keepalive
        keepalive: Ns = self.spec.keepalive if mine is None else mine
        return TunnelPeerPlan(
            name=name,
            public_key=to_base64(self._keys[name].public),
            allowed_ips=self.prefixes(name, inner),
            endpoint=f"{host}:{self._port(other)}" if known else "",
            keepalive=keepalive,
            preshared_key=self._preshared(own, name),
        )

    def _port(self, site: SiteSpec) -> int:
        return site.listen_port or self.spec.listen_port

    def _preshared(self, one: str, other: str) -> str:
        """Return the key of a pair of sites: with `generated` each pair has its own."""
        if self.spec.preshared_key != GENERATED:
            return self.spec.preshared_key
        pair = "/".join(sorted((one, other)))
        return to_base64(_drawn(self._lab.seed, f"overlay/psk/{pair}"))


def found_sites(
    wiring: Wiring, gateways: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the site of each node, and of those with more than one, all of them."""
    near: dict[str, set[str]] = {}
    for gateway, site in gateways.items():
        near.setdefault(gateway, set()).add(site)
        waiting = deque([gateway])
        seen = {gateway}
        while waiting:
            for port in wiring.ports[waiting.popleft()]:
                node = node_of(wiring.hop(port).receiver)
                if node in seen or node in gateways:
                    continue
                seen.add(node)
                near.setdefault(node, set()).add(site)
                waiting.append(node)
    sites = {node: next(iter(of)) for node, of in near.items() if len(of) == 1}
    return sites, {node: of for node, of in near.items() if len(of) > 1}


def narrow(lab: Lab, wiring: Wiring, routing: Routing, one: str, other: str) -> Narrow:
    """Return the smallest link on all shortest ways from a router to another."""
    towards = routing.towards(frozenset([other]))
    found: dict[int, None] = {}
    waiting, seen = deque([one]), {one}
    while waiting:
        for step in towards.get(waiting.popleft(), ()):
            for hop in wiring.segment(step.sender)[step.receiver]:
                found[hop.link] = None
            node = node_of(step.receiver)
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    links = [lab.topology.links[index] for index in found]
    return min(Narrow(link_mtu(lab, link), "--".join(link.endpoints)) for link in links)


def _drawn(seed: int, subject: str) -> bytes:
    """Return 32 bytes, the same for a seed in every version of Python."""
    return draw.stream(seed, subject).getrandbits(256).to_bytes(32, "big")
