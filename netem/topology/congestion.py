"""Classes and congestion control of connections: what a lab says, and whether it can be."""

from collections.abc import Iterator, Mapping

from netem.impair.model import Impairment
from netem.topology.congestion_model import dcqcn_of
from netem.topology.dilation import Need
from netem.topology.headroom import REACTION
from netem.topology.model import Family, Lab
from netem.topology.settings import link_vlan
from netem.topology.transport_model import TransportSpec
from transports.roce.congestion.control import CongestionConfig
from wire.ethernet import ETHERNET, VLAN
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6
from wire.udp import UDP

ECN = {"off": 0, "ect1": 1, "ect0": 2}
_IP = {"ipv6": IPV6.size, "ipv4": IPV4.size}


def traffic_class(transport: TransportSpec) -> int:
    """Return the traffic class of a transport's packets.

    Who controls congestion takes part in ECN, unless it is written otherwise.
    """
    if transport.tc is not None:
        return transport.tc
    ecn = transport.ecn or ("off" if transport.dcqcn is None else "ect0")
    return (transport.dscp or 0) << 2 | ECN[ecn]


def ack_traffic_class(transport: TransportSpec) -> int | None:
    """Return that of its acknowledgements, if it is another; they are not ECN-capable then."""
    return None if transport.ack_dscp is None else transport.ack_dscp << 2


def control(
    transport: TransportSpec, egress: Impairment, vlan: int | None, family: Family
) -> CongestionConfig | None:
    """Return the congestion control of a queue pair whose port has this egress."""
    if transport.dcqcn is None:
        return None
    dcqcn = dcqcn_of(transport.dcqcn)
    tag = 0 if vlan is None else VLAN.size
    return CongestionConfig(
        line_rate=egress.rate or dcqcn.rpg_max_rate,
        dcqcn=dcqcn,
        outer_size=ETHERNET.size + tag + _IP[family] + UDP.size + egress.overhead,
    )


def reaction_need(name: str, transport: TransportSpec) -> Need:
    """Return how slow a lab must run for processes to keep pace: half a step of the rate."""
    if transport.dcqcn is None:
        return Need(0.0, "")
    step = dcqcn_of(transport.dcqcn).rpg_time_reset
    return Need(2 * REACTION / step, f"senders of transport {name}", "change their rate")


def has_line_rate(transport: TransportSpec, egress: Impairment) -> bool:
    """Say whether it is known what a queue pair may send at most, if that matters."""
    return transport.dcqcn is None or bool(egress.rate or transport.dcqcn.rpg_max_rate)


def priorities(lab: Lab) -> Mapping[int, int]:
    """Return which DSCP goes with which priority of 802.1Q, where that is written."""
    return {dscp: pcp for _, dscp, pcp in _priorities(lab)}


def _priorities(lab: Lab) -> Iterator[tuple[str, int, int]]:
    """Yield where it is written, DSCP and priority; what is written wins over a default."""
    for name, transport in lab.transports.items():
        if transport.dcqcn is not None:
            keys = transport.dcqcn
            where = f"transports.{name}.dcqcn.cnp_802p_prio"
            yield where, dcqcn_of(keys).cnp_dscp, keys.cnp_802p_prio
    for name, transport in lab.transports.items():
        if transport.pcp is not None:
            yield f"transports.{name}.pcp", traffic_class(transport) >> 2, transport.pcp


def problems(lab: Lab) -> Iterator[str]:
    """Yield what is wrong with the classes of transports."""
    for name, transport in lab.transports.items():
        for key in ("dscp", "ecn"):
            if transport.tc is not None and getattr(transport, key) is not None:
                yield f"transports.{name}.{key}: tc says it already; write dscp and ecn, or tc"
    is_tagged = any(link_vlan(lab, link) is not None for link in lab.topology.links)
    found: dict[int, tuple[str, int]] = {}
    for where, dscp, pcp in _priorities(lab):
        if where.endswith(".pcp") and not is_tagged:
            yield f"{where}: no link has a vlan, so there is no tag to carry it; write vlan"
        first, other = found.setdefault(dscp, (where, pcp))
        if other != pcp:
            yield (
                f"{where}: DSCP {dscp} has priority {other} by {first};"
                " one DSCP has one priority"
            )


def remarks(lab: Lab) -> Iterator[str]:
    """Yield what a person should know of transports before the run."""
    for name, transport in lab.transports.items():
        if transport.dcqcn is not None and traffic_class(transport) & 3 not in {1, 2}:
            yield (
                f"transport {name}: DCQCN is on, but its packets are not ECN-capable, so that"
                " no switch marks them; write ecn: ect0"
            )
