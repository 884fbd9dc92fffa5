"""Checks of the workload: are the ends there, is there a way, does each key count."""

from collections.abc import Iterator

from netem.impair.model import Impairment
from netem.topology import addresses
from netem.topology.congestion import has_line_rate
from netem.topology.errors import shown
from netem.topology.fault_model import FaultSpec
from netem.topology.model import ATOMICS, RECEIVE_OPS, ItemSpec, Lab
from netem.topology.mrc import of_nic, reverse
from netem.topology.mrc import problems as mrc_problems
from netem.topology.mrc_ways import template
from netem.topology.mtu import mtu_sum, srv6_parts, usid_parts
from netem.topology.names import plane_of
from netem.topology.overlay import Overlay
from netem.topology.overlay_checks import crossing_problems
from netem.topology.oversize import too_small
from netem.topology.plan import SourceRoute
from netem.topology.regions import MAX_MEMORY, budget, region_sizes
from netem.topology.routing import Ground
from netem.topology.settings import (
    SourcePath,
    direction_impairment,
    source_path,
    traits,
    transport_of,
)
from netem.topology.spelling import suggestion
from netem.topology.srv6 import PathError, Srv6
from netem.topology.transport_model import MrcSpec
from netem.topology.units import format_size
from netem.topology.wiring import node_of
from netem.topology.workload import Ends, NoPairError, Pair, Pairing

MAX_MESSAGE = 1 << 31  # bytes. IBTA vol. 1, section 9.7.7
WRITES = ("write", "write_imm")
STEPS = ("write", "write_imm", "send", "send_imm")  # by which an all-reduce can go round
MAX_FLOWS = 16_384  # Limit: of a lab; a QP pair costs each end some 10 KiB


class WorkloadCheck:
    """The checks of one lab's workload."""

    def __init__(
        self,
        lab: Lab,
        ground: Ground,
        srv6: Srv6,
        problems: list[str],
        overlay: Overlay | None = None,
    ) -> None:
        self._lab = lab
        self._overlay = overlay
        self._ground = ground
        self._srv6 = srv6
        self._pairing = Pairing(ground, lab.seed)
        self._problems = problems

    def check(self) -> None:
        """Note the problems of each item, then those of all together, then strange flows."""
        before = len(self._problems)
        pairs = [self._check_item(i, item) for i, item in enumerate(self._lab.workload)]
        if len(self._problems) > before:
            return
        self._check_size(pairs)
        if len(self._problems) == before:
            self._check_flows(pairs)
            self._check_nics(pairs)

    def _check_flows(self, pairs: list[list[Ends]]) -> None:
        """Refuse faults on, and expectations of, flows that the workload does not have."""
        asked = [
            (f"{fault.location}.where.flow", fault.where.flow)
            for fault in self._lab.faults
            if isinstance(fault, FaultSpec) and fault.where.flow is not None
        ]
        asked += [
            (f"expect[{index}].flow", bounds[0].flow)
            for index, bounds in enumerate(self._lab.expect)
            if bounds[0].flow is not None
        ]
        if not asked:
            return
        known: dict[str, None] = {}
        for index, (item, found) in enumerate(zip(self._lab.workload, pairs, strict=True)):
            known[str(index)] = None
            for pair in (one.pairs[0] for one in found):
                ends = f"{index}/{node_of(pair.source)}->{node_of(pair.target)}"
                known |= dict.fromkeys((ends, *(f"{ends}/{n}" for n in range(item.qps))))
        for where, flow in asked:
            if flow not in known:
                rest = suggestion(flow, known)
                self._problems.append(f"{where}: no flow {shown(flow)}{rest}")

    def _check_size(self, pairs: list[list[Ends]]) -> None:
        flows = sum(
            len(found) * item.qps for item, found in zip(self._lab.workload, pairs, strict=True)
        )
        if flows > MAX_FLOWS:
            self._problems.append(f"workload: {flows} queue pairs; at most {MAX_FLOWS}")
            return
        memory = 0
        for item, found in zip(self._lab.workload, pairs, strict=True):
            transport = self._lab.transports[transport_of(self._lab, item) or ""]
            sizes = region_sizes(item, transport, budget(flows))
            memory += sum(sizes) * len(found) * item.qps
        if memory > MAX_MEMORY:
            self._problems.append(
                f"workload: its memory regions are {memory >> 20} MiB together;"
                f" at most {MAX_MEMORY >> 20} MiB"
            )

    def _check_item(self, index: int, item: ItemSpec) -> list[Ends]:
        """Note the problems of one item; return its pairs, none if they cannot be found."""
        self._problems.extend(f"{item.location}.{line}" for line in _item_problems(index, item))
        if transport_of(self._lab, item) not in self._lab.transports:
            self._no_transport(item)
        try:
            pairs = self._pairing.pairs(index, item)
        except NoPairError as error:
            self._problems.append(f"{item.location}.{error.key}: {error}")
            return []
        one_each = [ends.pairs[0] for ends in pairs]
        self._check_parties(item, one_each)
        self._check_families(item, one_each)
        self._check_congestion(item, one_each)
        if self._overlay is not None:
            problems = crossing_problems(self._lab, self._overlay, item, one_each)
            self._problems.extend(problems)
        name = transport_of(self._lab, item) or ""
        if isinstance(self._lab.transports.get(name), MrcSpec):
            self._check_mrc(item, pairs)
        elif (path := source_path(self._lab, item)) is not None:
            self._check_path(item, path, one_each)
        elif item.encaps is not None:
            self._problems.append(f"{item.location}.encaps: does nothing without a path")
        return pairs

    def _check_parties(self, item: ItemSpec, pairs: list[Pair]) -> None:
        """Refuse hosts whose RoCE is not ours to drive."""
        names = [node_of(end) for pair in pairs for end in pair]
        for name in dict.fromkeys(names):
            node = self._lab.topology.nodes[name]
            if node.kind == "guest":
                why = "is a guest; what it does is its command:"
            elif traits(self._lab, node).stack == "programs":
                why = "leaves RoCE to programs; write stack: kernel or none"
            else:
                continue
            self._problems.append(f"{item.location}: {name} {why}")

    def _no_transport(self, item: ItemSpec) -> None:
        known = list(self._lab.transports)
        if item.transport is None:
            line = f"missing; legal: {', '.join(known)}"
        else:
            line = f"no transport {shown(item.transport)}{suggestion(item.transport, known)}"
        self._problems.append(f"{item.location}.transport: {line}")

    def _check_path(self, item: ItemSpec, path: SourcePath, pairs: list[Pair]) -> None:
        """Refuse segments that are not there, and packets that the way cannot carry."""
        for pair in pairs:
            ends = pair.source, pair.target
            if any(self._mode(port) != "frame" for port in ends):
                name = next(node_of(port) for port in ends if self._mode(port) != "frame")
                self._problems.append(
                    f"{path.key}.path: {name} is in datagram mode, in which the kernel writes"
                    " the headers; write mode: frame"
                )
                return
            for back in (False, True):
                try:
                    route = self._srv6.route(path, ends[::-1] if back else ends, back=back)
                except PathError as error:
                    key = "path_back" if back else "path"
                    element = "" if error.element is None else f"[{error.element}]"
                    self._problems.append(f"{path.key}.{key}{element}: {error}")
                    return
                if route is not None and self._is_too_large(item, route, pair, back=back):
                    return

    def _check_congestion(self, item: ItemSpec, pairs: list[Pair]) -> None:
        """Refuse DCQCN where nobody sees marks, or knows how fast the line is."""
        name = transport_of(self._lab, item) or ""
        transport = self._lab.transports.get(name)
        if transport is None or transport.dcqcn is None:
            return
        where = f"transports.{name}.dcqcn"
        for port in (end for pair in pairs for end in (pair.source, pair.target)):
            egress = self._egress(port)
            line = ""
            if self._mode(port) != "frame":
                line = (
                    f"{node_of(port)} is in datagram mode, in which the kernel keeps the marks"
                    " and trains have no pace; write mode: frame"
                )
            elif not has_line_rate(transport, egress):
                line = f"the link of {port} has no rate; write rpg_max_rate, or a rate there"
            if line and f"{where}: {line}" not in self._problems:
                self._problems.append(f"{where}: {line}")

    def _check_mrc(self, item: ItemSpec, found: list[Ends]) -> None:
        """Refuse what MRC does not carry, and hosts that it cannot join."""
        name = transport_of(self._lab, item) or ""
        spec = self._lab.transports[name]
        assert isinstance(spec, MrcSpec)
        lines: dict[str, None] = {}
        if item.op not in WRITES:
            lines[f"{item.location}.op: MRC has no {item.op}; legal: {', '.join(WRITES)}"] = (
                None
            )
        if item.op == "write_imm" and not spec.max_wimm:
            what = f"{item.location}.op: write_imm, and transports.{name}.max_wimm is 0"
            lines[f"{what}; write 1 or more there, or op: write"] = None
        for key in ("path", "path_back", "encaps"):
            if getattr(item, key) is not None:
                lines[f"{item.location}.{key}: MRC chooses its paths itself"] = None
        for ends in found:
            ports = [port for pair in ends.every for port in pair]
            for port in ports:
                if self._mode(port) != "frame":
                    why = f"{node_of(port)} is in datagram mode; MRC wants mode: frame"
                    lines[f"{item.location}: {why}"] = None
            nodes = self._lab.topology.nodes
            families = {traits(self._lab, nodes[node_of(port)]).family for port in ports}
            rates = {self._egress(pair.source).rate for pair in ends.every}
            where = f"transports.{name}"
            lines |= dict.fromkeys(mrc_problems(spec, where, ends.every, families, rates))
            if spec.ev_format == "srv6" and not lines:
                lines |= dict.fromkeys(self._led_problems(name, spec, ends.every))
        self._problems.extend(line for line in lines if line not in self._problems)

    def _led_problems(self, name: str, spec: MrcSpec, pairs: tuple[Pair, ...]) -> Iterator[str]:
        """Yield why segments do not lead an MRC connection, or which links are too small."""
        routing, hop = self._ground.routing, self._ground.wiring.hop
        for pair in (*pairs, *reverse(pairs)):
            try:
                ways = template(self._srv6, routing, pair)
            except PathError as error:
                yield f"transports.{name}.ev_format: {error}"
                return
            around = usid_parts(len(ways.slots))
            needed = mtu_sum(spec.mtu, "ipv6", kind="mrc", around=around)
            crossed = {hop(port).link: None for port in routing.share(*pair)}
            links = [self._lab.topology.links[link] for link in crossed]
            yield from too_small(self._lab, links, needed, f"transport {name}, led by segments")

    def _check_nics(self, pairs: list[list[Ends]]) -> None:
        """Refuse hosts whose MRC connections want different things of their one NIC."""
        known: dict[str, tuple[str, tuple[object, ...]]] = {}
        lines: dict[str, None] = {}
        for item, found in zip(self._lab.workload, pairs, strict=True):
            name = transport_of(self._lab, item) or ""
            spec = self._lab.transports[name]
            if isinstance(spec, MrcSpec):
                for one in (ends.every[0] for ends in found):
                    for port, readings in zip(one, spec.both_readings, strict=True):
                        wanted = spec.ev_format == "srv6", *of_nic(readings)
                        host = node_of(port)
                        first, has = known.setdefault(host, (name, wanted))
                        if has != wanted:
                            lines[
                                f"transports.{name}: {host} has one NIC, and transport {first}"
                                " wants another encapsulation or other readings of it"
                            ] = None
        self._problems.extend(lines)

    def _egress(self, port: str) -> Impairment:
        link = self._lab.topology.links[self._ground.wiring.hop(port).link]
        return direction_impairment(self._lab, link, self._ground.names, port)

    def _mode(self, port: str) -> str:
        return traits(self._lab, self._lab.topology.nodes[node_of(port)]).mode

    def _is_too_large(
        self, item: ItemSpec, route: SourceRoute, pair: Pair, *, back: bool
    ) -> bool:
        """Note the links that are too small for what a path makes of a packet, if any."""
        name = transport_of(self._lab, item) or ""
        family = traits(self._lab, self._lab.topology.nodes[node_of(pair.source)]).family
        needed = mtu_sum(self._lab.transports[name].mtu, family, around=srv6_parts(route))
        ends = (pair.target, pair.source) if back else (pair.source, pair.target)
        crossed = self._ground.routing.share(*ends, route.via)
        links = {self._ground.wiring.hop(port).link: None for port in crossed}
        what = f"transport {name} with the path of {item.location}"
        found = list(
            too_small(
                self._lab, [self._lab.topology.links[link] for link in links], needed, what
            )
        )
        self._problems.extend(line for line in found if line not in self._problems)
        return bool(found)

    def _check_families(self, item: ItemSpec, pairs: list[Pair]) -> None:
        nodes = self._lab.topology.nodes
        for pair in pairs:
            one, other = (
                traits(self._lab, nodes[node_of(port)]).family
                for port in (pair.source, pair.target)
            )
            if one != other:
                self._problems.append(
                    f"{item.location}.to: {self._gid(pair.source)} is {one} and"
                    f" {self._gid(pair.target)} is {other}; give both one family"
                )
                return

    def _gid(self, port: str) -> str:
        """Return a host with its GID, for people who look for the wrong one."""
        name, _, own = port.partition(":")
        node = self._lab.topology.nodes[name]
        family = traits(self._lab, node).family
        ip = addresses.host_ip(node.number, plane_of(own), family)
        return f"{name} (GID {addresses.gid(ip)})"


# Keys of an item that only some operations have a use for.
_ONLY_FOR = {
    "imm": ("send_imm", "write_imm"),
    "compare": ("cmp_swap",),
    "swap": ("cmp_swap",),
    "add": ("fetch_add",),
    "recv_count": RECEIVE_OPS,
    "recv_size": RECEIVE_OPS,
    "remote_offset": ("write", "write_imm", "read", *ATOMICS),
    "bad_key": ("write", "write_imm", "read", "send_inv", *ATOMICS),
}


def _item_problems(index: int, item: ItemSpec) -> Iterator[str]:
    if item.pattern == "all_reduce" and item.op not in STEPS:
        yield f"op: {item.op} brings nothing to the next host; legal: {', '.join(STEPS)}"
    yield from _operation_problems(item)
    if item.after is not None and item.after >= index:
        above = f"legal: 0 to {index - 1}" if index else "the first item has none above it"
        yield f"after: {item.after} is not an item above this one; {above}"


def _operation_problems(item: ItemSpec) -> Iterator[str]:
    for key, ops in _ONLY_FOR.items():
        if getattr(item, key) not in {None, False} and item.op not in ops:
            yield f"{key}: {item.op} has no use for it; only {', '.join(ops)}"
    if item.op in ATOMICS:
        if item.size not in {(), (8,)}:
            yield "size: an atomic has 8B; leave it out"
        if item.compare is None and item.op == "cmp_swap":
            yield "compare: missing; what the word must hold to be swapped"
        if item.swap is None and item.op == "cmp_swap":
            yield "swap: missing; what the word becomes"
    elif not item.size:
        yield "size: missing; write for example 64KiB"
    elif max(item.size) > MAX_MESSAGE:
        yield f"size: {format_size(max(item.size))} is too large for a message; at most 2GiB"
