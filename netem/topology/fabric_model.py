"""Generators of fabrics as types: what `fabric:` may say, by its kind.

What they make is in `netem.topology.fabric`. The shapes and their formulas are those of the
published designs: two tiers with planes, three tiers of k-port switches, rails, two sites.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from netem.topology.errors import shown
from netem.topology.link_model import LinkKeys, Shape
from netem.topology.names import MAX_HOST_PORTS
from netem.topology.reading import (
    BAD,
    DISTANCE,
    RATIO,
    Keys,
    OneOf,
    Spec,
    Whole,
    read_keys,
)
from netem.topology.spelling import suggestion
from netem.topology.tree import Tree
from netem.topology.units import Ratio

# Limits, ours. Of one tier: a uSID has eight bits for the index of a switch in its tier
# (mrc.md 12.5), and `checks` refuses SRv6 beyond; without it more may be asked for.
MAX_SWITCHES = 1024
MAX_HOSTS_EACH = 1024
MAX_K = 20  # 2,000 hosts, 500 switches


class FabricKeys(Spec, frozen=True, kw_only=True):
    """What all generators have in common."""

    forwarder: Annotated[Literal["switch", "linux"], OneOf(("switch", "linux"))] = "switch"
    host_link: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()
    to_hosts: Annotated[Shape | None, Keys(Shape)] = None  # one direction of these
    location: str = ""


class ClosSpec(FabricKeys, frozen=True, kw_only=True):
    """Two tiers, in each plane every T0 linked to every T1."""

    kind: Annotated[Literal["clos"], OneOf(("clos",))] = "clos"
    planes: Annotated[int, Whole(1, MAX_HOST_PORTS, "ports of each host")] = 1
    t0: Annotated[int, Whole(1, MAX_SWITCHES, "of each plane")]
    t1: Annotated[int | None, Whole(1, MAX_SWITCHES, "of each plane")] = None
    hosts_per_t0: Annotated[int, Whole(1, MAX_HOSTS_EACH)]
    oversubscription: Annotated[Ratio | None, RATIO] = None
    uplink: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()


class FatTreeSpec(FabricKeys, frozen=True, kw_only=True):
    """Three tiers of k-port switches: k pods of k/2 + k/2, and (k/2)^2 cores."""

    kind: Annotated[Literal["fat_tree"], OneOf(("fat_tree",))] = "fat_tree"
    k: Annotated[int, Whole(2, MAX_K, "ports of a switch, even")]
    uplink: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()
    core_link: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()


class RailSpec(FabricKeys, frozen=True, kw_only=True):
    """Port i of every server of a group on T0 number i of the group; T1 join all T0s."""

    kind: Annotated[Literal["rail"], OneOf(("rail",))] = "rail"
    rails: Annotated[int, Whole(1, MAX_HOST_PORTS, "ports of each server")]
    groups: Annotated[int, Whole(1, MAX_SWITCHES)] = 1
    servers: Annotated[int, Whole(1, MAX_HOSTS_EACH, "of each group")]
    t1: Annotated[int, Whole(0, MAX_SWITCHES, "0: rails only")] = 0
    uplink: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()


class TwoSitesSpec(FabricKeys, frozen=True, kw_only=True):
    """Two Clos fabrics, each below a few aggregation switches, which long links join."""

    kind: Annotated[Literal["two_sites"], OneOf(("two_sites",))] = "two_sites"
    t0: Annotated[int, Whole(1, MAX_SWITCHES, "of each site")]
    t1: Annotated[int, Whole(1, MAX_SWITCHES, "of each site")]
    hosts_per_t0: Annotated[int, Whole(1, MAX_HOSTS_EACH)]
    t2: Annotated[int, Whole(1, MAX_SWITCHES, "aggregation switches of each site")] = 1
    distance: Annotated[int, DISTANCE]
    layout: Annotated[Literal["planar", "spread"], OneOf(("planar", "spread"))] = "planar"
    oversubscription: Annotated[Ratio | None, RATIO] = None
    uplink: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()
    core_link: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()
    long_link: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()


class RingSpec(FabricKeys, frozen=True, kw_only=True):
    """Switches in a circle, with hosts at each."""

    kind: Annotated[Literal["ring"], OneOf(("ring",))] = "ring"
    switches: Annotated[int, Whole(3, MAX_SWITCHES)]
    hosts_per_switch: Annotated[int, Whole(0, MAX_HOSTS_EACH)] = 1
    uplink: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()


class LineSpec(FabricKeys, frozen=True, kw_only=True):
    """Switches in a row, with hosts at the two ends, or at each."""

    kind: Annotated[Literal["line"], OneOf(("line",))] = "line"
    switches: Annotated[int, Whole(2, MAX_SWITCHES)]
    hosts_per_switch: Annotated[int, Whole(1, MAX_HOSTS_EACH)] = 1
    hosts_at: Annotated[Literal["ends", "each"], OneOf(("ends", "each"))] = "ends"
    uplink: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()


class StarSpec(FabricKeys, frozen=True, kw_only=True):
    """One switch in each plane, and hosts around it."""

    kind: Annotated[Literal["star"], OneOf(("star",))] = "star"
    planes: Annotated[int, Whole(1, MAX_HOST_PORTS, "ports of each host")] = 1
    hosts: Annotated[int, Whole(1, MAX_HOSTS_EACH)]


FabricSpec: TypeAlias = (
    ClosSpec | FatTreeSpec | RailSpec | TwoSitesSpec | RingSpec | LineSpec | StarSpec
)
KINDS: dict[str, type[FabricKeys]] = {
    "clos": ClosSpec,
    "fat_tree": FatTreeSpec,
    "rail": RailSpec,
    "two_sites": TwoSitesSpec,
    "ring": RingSpec,
    "line": LineSpec,
    "star": StarSpec,
}


@dataclass(frozen=True, slots=True)
class FabricKind:
    """A mapping whose `kind` says which other keys it may have."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict):
            words = ", ".join(KINDS)
            problems.append(f"{path}: {shown(tree)} is not a mapping; its kind: {words}")
            return BAD
        kind = tree.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            what = f"{shown(kind)} is unknown" if "kind" in tree else "missing"
            problems.append(f"{path}.kind: {what}{suggestion(str(kind), KINDS)}")
            return BAD
        fabric = read_keys(KINDS[kind], tree, path, problems)
        return BAD if fabric is None else fabric
