"""Checks of the overlay: are its gateways where they must be, does a packet fit."""

import itertools
from collections.abc import Iterator

from netem.topology.errors import shown
from netem.topology.model import ItemSpec, Lab
from netem.topology.mtu import mtu_sum
from netem.topology.overlay import (
    Narrow,
    Overlay,
    limits_of,
    narrow,
    overhead,
    private_key,
)
from netem.topology.overlay_model import OverlaySpec, SiteSpec
from netem.topology.routing import Routing
from netem.topology.settings import kind_of, source_path, traits, transport_of
from netem.topology.spelling import suggestion
from netem.topology.wiring import Wiring, node_of
from netem.topology.workload import Pair

_LEAST_INNER_V6 = 1280  # RFC 8200, section 5


def overlay_problems(lab: Lab, wiring: Wiring, routing: Routing) -> Iterator[str]:
    """Yield what is wrong with sites, gateways, keys, timers and MTU."""
    spec = lab.overlay
    if spec is None:
        return
    if len(spec.sites) < 2:
        yield "overlay.sites: a tunnel has two ends; write two sites or more"
        return
    before = list(_gateway_problems(lab, spec))
    yield from before
    yield from _site_problems(lab, spec)
    try:
        limits_of(spec).made()
    except ValueError as error:
        yield f"overlay.timers: {error}"
    if before:
        return
    gateways = [site.gateway for site in spec.sites.values()]
    first, *others = gateways
    alone = [other for other in others if not routing.joined(first, other)]
    yield from (f"overlay.sites: no way from {first} to {other}" for other in alone)
    if not alone:
        ways = itertools.permutations(gateways, 2)
        narrowest = min(narrow(lab, wiring, routing, one, other) for one, other in ways)
        yield from _mtu_problems(lab, spec, narrowest)


def _gateway_problems(lab: Lab, spec: OverlaySpec) -> Iterator[str]:
    taken: dict[str, str] = {}
    for name, site in spec.sites.items():
        where, gateway = f"{site.location}.gateway", site.gateway
        node = lab.topology.nodes.get(gateway)
        if node is None:
            known = lab.topology.nodes
            yield f"{where}: no node {shown(gateway)}{suggestion(gateway, known)}"
        elif kind_of(node) != "linux":
            yield f"{where}: {gateway} is a {kind_of(node)}; a gateway is of kind: linux"
        elif gateway in taken:
            yield f"{where}: {gateway} is the gateway of {taken[gateway]} already"
        taken.setdefault(gateway, name)


def _site_problems(lab: Lab, spec: OverlaySpec) -> Iterator[str]:
    keys: dict[bytes, str] = {}
    for name, site in spec.sites.items():
        public = private_key(lab, name, site).public
        if public in keys:
            yield f"{site.location}.private_key: that of {keys[public]}; each site has its own"
        keys.setdefault(public, name)
        yield from _move_problems(site)
    if not any(site.endpoint == "known" for site in spec.sites.values()):
        yield "overlay.sites: nobody's endpoint is known, so nobody can speak first"


def _move_problems(site: SiteSpec) -> Iterator[str]:
    for number, (one, other) in enumerate(zip(site.moves, site.moves[1:], strict=False), 1):
        if other.at <= one.at:
            yield f"{site.location}.moves[{number}].at: not after the move before it"


def _mtu_problems(lab: Lab, spec: OverlaySpec, narrowest: Narrow) -> Iterator[str]:
    fits = narrowest.mtu - overhead(spec)
    if spec.mtu is not None and spec.mtu > fits and spec.df == "set":
        yield (
            f"overlay.mtu: {spec.mtu} and {overhead(spec)} around it are more than"
            f" {narrowest.mtu}, the mtu of {narrowest.link}; legal: up to {fits}, auto,"
            " or any with df: clear"
        )
    hosts = (n for n in lab.topology.nodes.values() if kind_of(n) in {"host", "guest"})
    has_v6 = any(traits(lab, node).family == "ipv6" for node in hosts)
    mtu = fits if spec.mtu is None else spec.mtu
    if has_v6 and mtu < _LEAST_INNER_V6:
        yield (
            f"overlay.mtu: {mtu} is less than IPv6 inside needs, {_LEAST_INNER_V6};"
            f" raise the mtu of {narrowest.link} to {_LEAST_INNER_V6 + overhead(spec)}"
        )


def crossing_problems(
    lab: Lab, overlay: Overlay, item: ItemSpec, pairs: list[Pair]
) -> Iterator[str]:
    """Yield what an item sends that no tunnel takes."""
    name = transport_of(lab, item) or ""
    transport = lab.transports.get(name)
    for source, target in pairs:
        one = node_of(source)
        if transport is None or not overlay.crosses(one, node_of(target)):
            continue
        if source_path(lab, item) is not None:
            yield f"{item.location}.path: tunnels take what is for hosts, and no segments"
            return
        needed = mtu_sum(transport.mtu, traits(lab, lab.topology.nodes[one]).family)
        if needed.packet > overlay.mtu:
            yield (
                f"overlay.mtu: {overlay.mtu} is too small for transport {name} of"
                f" {item.location}; legal: {needed.packet} or more: {needed.text};"
                f" the smallest link is {overlay.narrowest().link}"
            )
            return
