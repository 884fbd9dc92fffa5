"""Checks of nodes: which keys a kind has, what a switch can do, which SIDs can be."""

from collections.abc import Iterator

from netem.topology.errors import shown
from netem.topology.headroom import Cable
from netem.topology.model import HostKeys, Lab, NodeSpec
from netem.topology.reading import keys_of
from netem.topology.settings import HostTraits, kind_of, switch_keys, traits
from netem.topology.srv6 import ADJACENT, DECAPSULATING, PathError, Srv6, usid_of
from netem.topology.srv6_model import SidSpec
from netem.topology.switch_model import SwitchKeys
from netem.topology.switches import memory_problems, problems, switch_plan
from netem.topology.wiring import Wiring

_SWITCH_KEYS = frozenset(keys_of(SwitchKeys))
_HOST_KEYS = frozenset(keys_of(HostKeys))
_ROUTER_KEYS = frozenset({"usid", "sids", "steer"})
ALLOWED = {
    "host": _HOST_KEYS | {"sids", "command"},
    "guest": frozenset({"family", "command"}),
    "switch": _SWITCH_KEYS | _ROUTER_KEYS,
    "linux": _ROUTER_KEYS,
    "bridge": frozenset[str](),
}
# Of the kernel's seg6local: what no kernel has, and what needs a VRF device (srv6.md 8).
_KERNEL_HAS_NOT = {"End.DT4", "End.DT46", "uDT4", "uDT46"}
_HOST_ROLE = 8


def node_problems(lab: Lab) -> Iterator[str]:
    """Yield what is wrong with nodes, each by itself."""
    if not lab.topology.nodes:
        yield "topology.nodes: empty; write at least one node"
    common = list(problems(lab.defaults.switch))
    yield from (f"defaults.switch.{line}" for line in common)
    for name, node in lab.topology.nodes.items():
        kind = kind_of(node)
        written = [key for key in keys_of(NodeSpec) if key != "kind" and _is_written(node, key)]
        yield from (
            f"{node.location}.{key}: a {kind} has none"
            for key in written
            if key not in ALLOWED[kind]
        )
        if kind == "host":
            host = traits(lab, node)
            if host.mode == "datagram" and host.family == "ipv4":
                yield (
                    f"topology.nodes.{name}: datagram mode is IPv6 only;"
                    " write family: ipv6 or mode: frame"
                )
            yield from _program_problems(name, node, host)
        elif kind == "switch":
            if not common and _SWITCH_KEYS.intersection(written):
                own = problems(switch_keys(lab, node))
                yield from (f"{node.location}.{line}" for line in own)
            if switch_keys(lab, node).forward == "bridge":
                yield from (
                    f"{node.location}.{key}: a switch that bridges has none"
                    for key in sorted(_ROUTER_KEYS.intersection(written))
                )


def _program_problems(name: str, node: NodeSpec, host: HostTraits) -> Iterator[str]:
    """Yield what a host has no network for."""
    where = f"topology.nodes.{name}"
    if host.stack == "programs" and host.mode == "datagram":
        yield f"{where}: RoCE is left to programs in frame mode only; write stack: kernel"
    if node.command is not None and host.stack == "none" and host.mode == "frame":
        yield f"{where}.command: has no network with stack: none; write stack: programs"


def _is_written(node: NodeSpec, key: str) -> bool:
    return getattr(node, key) not in (None, (), {})


def memory(lab: Lab, name: str, cables: tuple[Cable, ...]) -> Iterator[str]:
    """Yield a line where a switch's packet memory is all reserves and headroom."""
    node = lab.topology.nodes[name]
    keys = switch_keys(lab, node)
    where = node.location if node.buffer is not None or node.queues else "defaults.switch"
    plan = switch_plan(keys, name=name, seed=lab.seed, cables=cables)
    yield from (f"{where}.{line}" for line in memory_problems(plan, len(cables)))


# -- SIDs ------------------------------------------------------------------------------------


def sid_problems(lab: Lab, wiring: Wiring, srv6: Srv6) -> Iterator[str]:
    """Yield what is wrong with uSIDs and SIDs."""
    yield from _usid_problems(lab, wiring, srv6)
    for name, node in lab.topology.nodes.items():
        if wiring.roles[name] == "bridge":
            continue
        seen: dict[str, str] = {}
        for spec in node.sids:
            prefix = spec.sid.prefix
            if prefix in seen:
                yield f"{spec.location}.sid: {prefix} is {seen[prefix]} already"
            seen.setdefault(prefix, spec.location)
            yield from (
                f"{spec.location}.{line}" for line in _sid_problems(name, node, spec, srv6)
            )
        for steer in node.steer:
            try:
                srv6.steered(name, steer, "::", {})
            except PathError as error:
                key = "to" if error.element is None else f"path[{error.element}]"
                yield f"{steer.location}.{key}: {error}"


def _usid_problems(lab: Lab, wiring: Wiring, srv6: Srv6) -> Iterator[str]:
    taken: dict[int, str] = {}
    for name in wiring.routers:
        node = lab.topology.nodes[name]
        usid = usid_of(node)
        if node.usid is not None and usid >> 8 & 0xF == _HOST_ROLE:
            yield (
                f"{node.location}.usid: {usid:#06x} is a host's: its role, the second digit,"
                " is 8"
            )
        elif usid in taken and (srv6.is_used or node.usid is not None):
            where = node.location if node.usid is not None else f"topology.nodes.{taken[usid]}"
            yield f"{where}.usid: {usid:#06x} is that of {taken[usid]} and {name}"
        taken.setdefault(usid, name)


def _sid_problems(name: str, node: NodeSpec, spec: SidSpec, srv6: Srv6) -> Iterator[str]:
    kind, behaviour = kind_of(node), spec.behaviour
    if kind == "host" and (behaviour not in DECAPSULATING or behaviour in ADJACENT):
        yield f"behaviour: {behaviour} forwards, and {name} is a host; write End.DT6"
    if kind == "linux":
        if behaviour in _KERNEL_HAS_NOT:
            yield f"behaviour: {behaviour} needs a VRF, which kernel routers here do not have"
        for number, flavour in enumerate(spec.flavours):
            if flavour != "psp" or behaviour not in {"End", "uN"}:
                yield f"flavours[{number}]: the kernel has no {flavour} for {behaviour}"
    if behaviour.startswith("u"):
        if spec.sid.length not in {48, 64}:
            yield f"sid: {spec.sid.prefix} is no locator of a uSID; write a /48"
        elif spec.sid.value >> 96 != srv6.block:
            yield f"sid: {spec.sid.prefix} is not in the block of uSIDs; see srv6.block"
    yield from _target_problems(name, spec, srv6)


def _target_problems(name: str, spec: SidSpec, srv6: Srv6) -> Iterator[str]:
    if spec.behaviour not in ADJACENT:
        if spec.target is not None:
            yield f"to: {spec.behaviour} looks its way up; only X and DX behaviours name it"
        return
    if spec.target is None:
        yield f"to: missing; the neighbour that {spec.behaviour} sends to, for example s2"
        return
    found = srv6.adjacent(name, spec.target)
    if not found:
        yield f"to: {shown(spec.target)} is no neighbour of {name}"
    elif len(found) > 1:
        ports = ", ".join(end for _, end in found)
        yield f"to: {spec.target} is at {len(found)} links; write a port: {ports}"
