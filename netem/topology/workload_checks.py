"""Checks of the workload: are the ends there, is there a way, does each key count."""

from collections.abc import Iterator

from netem.topology.errors import shown
from netem.topology.model import ATOMICS, RECEIVE_OPS, FaultSpec, ItemSpec, Lab
from netem.topology.names import Names
from netem.topology.regions import MAX_MEMORY, budget, region_sizes
from netem.topology.settings import traits, transport_of
from netem.topology.spelling import suggestion
from netem.topology.units import format_size
from netem.topology.wiring import Wiring, node_of
from netem.topology.workload import NoPairError, Pair, Pairing

MAX_MESSAGE = 1 << 31  # bytes. IBTA vol. 1, section 9.7.7
MAX_FLOWS = 16_384  # Limit: of a lab; a QP pair costs each end some 10 KiB


class WorkloadCheck:
    """The checks of one lab's workload."""

    def __init__(self, lab: Lab, names: Names, wiring: Wiring, problems: list[str]) -> None:
        self._lab = lab
        self._pairing = Pairing(names, wiring, lab.seed)
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

    def _check_flows(self, pairs: list[list[Pair]]) -> None:
        """Refuse faults on flows that the workload does not have."""
        faults = [fault for fault in self._lab.faults if isinstance(fault, FaultSpec)]
        if all(fault.where.flow is None for fault in faults):
            return
        known: dict[str, None] = {}
        for index, (item, found) in enumerate(zip(self._lab.workload, pairs, strict=True)):
            known[str(index)] = None
            for pair in found:
                ends = f"{index}/{node_of(pair.source)}->{node_of(pair.target)}"
                known |= dict.fromkeys((ends, *(f"{ends}/{n}" for n in range(item.qps))))
        for fault in faults:
            flow = fault.where.flow
            if flow is not None and flow not in known:
                rest = suggestion(flow, known)
                self._problems.append(f"{fault.path}.where.flow: no flow {shown(flow)}{rest}")

    def _check_size(self, pairs: list[list[Pair]]) -> None:
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

    def _check_item(self, index: int, item: ItemSpec) -> list[Pair]:
        """Note the problems of one item; return its pairs, none if they cannot be found."""
        self._problems.extend(f"{item.path}.{line}" for line in _item_problems(index, item))
        if transport_of(self._lab, item) not in self._lab.transports:
            self._no_transport(item)
        try:
            pairs = self._pairing.pairs(index, item)
        except NoPairError as error:
            self._problems.append(f"{item.path}.{error.key}: {error}")
            return []
        self._check_families(item, pairs)
        return pairs

    def _no_transport(self, item: ItemSpec) -> None:
        known = list(self._lab.transports)
        if item.transport is None:
            line = f"missing; legal: {', '.join(known)}"
        else:
            line = f"no transport {shown(item.transport)}{suggestion(item.transport, known)}"
        self._problems.append(f"{item.path}.transport: {line}")

    def _check_families(self, item: ItemSpec, pairs: list[Pair]) -> None:
        nodes = self._lab.topology.nodes
        for pair in pairs:
            one, other = (
                traits(self._lab, nodes[node_of(port)]).family
                for port in (pair.source, pair.target)
            )
            if one != other:
                self._problems.append(
                    f"{item.path}.to: {node_of(pair.source)} has {one} and"
                    f" {node_of(pair.target)} has {other}; give both one family"
                )
                return


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
    if item.after is not None and item.after >= index:
        above = f"legal: 0 to {index - 1}" if index else "the first item has none above it"
        yield f"after: {item.after} is not an item above this one; {above}"
