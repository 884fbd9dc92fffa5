"""From the SIDs and paths of a plan to those of `transports.srv6`."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, IPv6Network

from netem.topology.switch_plan import SidPlan, SteerPlan
from transports.srv6.headend import Policy
from transports.srv6.outcome import Adjacency
from transports.srv6.sids import Behaviour, Flavour, Sid
from wire.csid import CsidStructure

BLOCK = 32  # bits: F3216, mrc.md 12.5
MAIN = 254  # the one table of a switch, by Linux's number
_FLAVOURS = {"psp": Flavour.PSP, "usp": Flavour.USP, "usd": Flavour.USD}
_COMPRESSED = {"uN": Behaviour.END, "uA": Behaviour.END_X}
_LOOKING_UP = {Behaviour.END_DT4, Behaviour.END_DT6, Behaviour.END_DT46}


def blocks(plans: Iterable[SidPlan]) -> frozenset[bytes]:
    """Return the blocks, 4 bytes each, that the compressed SIDs of a node are in."""
    return frozenset(
        IPv6Network(plan.prefix).network_address.packed[: BLOCK // 8]
        for plan in plans
        if plan.behaviour.startswith("u")
    )


def sids(plans: Iterable[SidPlan]) -> Iterator[Sid]:
    """Yield the SIDs of a node. Raise ValueError for what cannot be."""
    for plan in plans:
        yield sid(plan)


def sid(plan: SidPlan) -> Sid:
    """Return one SID. uDT and uDX are their classic sisters, as the last of a container."""
    prefix = IPv6Network(plan.prefix)
    flavours = Flavour.NONE
    for name in plan.flavours:
        flavours |= _FLAVOURS[name]
    if plan.behaviour in _COMPRESSED:
        behaviour = _COMPRESSED[plan.behaviour]
        flavours |= Flavour.NEXT_CSID
    else:
        behaviour = Behaviour(plan.behaviour.replace("uD", "End.D"))
    return Sid(
        prefix,
        behaviour,
        flavours,
        CsidStructure(BLOCK, max(8, prefix.prefixlen - BLOCK)),
        adjacencies=adjacencies(plan),
        table=MAIN if behaviour in _LOOKING_UP else None,
    )


def adjacencies(plan: SidPlan) -> tuple[Adjacency, ...]:
    """Return the hops of a SID; a neighbour is known by its MAC here."""
    return tuple(
        Adjacency(hop.port, bytes.fromhex(hop.mac.replace(":", ""))) for hop in plan.hops
    )


def policy(plan: SteerPlan) -> Policy:
    """Return a path that packets are steered into. Raise ValueError for what cannot be."""
    segments = tuple(IPv6Address(segment).packed for segment in plan.segments)
    source = IPv6Address(plan.source).packed
    return Policy(source, segments, reduced=plan.mode == "encaps_red")
