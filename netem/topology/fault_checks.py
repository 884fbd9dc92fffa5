"""Checks of faults: where they are, what each kind needs, what changes come to together."""

from collections.abc import Iterator

from netem.impair.faults import legal_ops
from netem.impair.model import Impairment
from netem.topology import schedule
from netem.topology.errors import shown
from netem.topology.fault_model import ChangeSpec, EventSpec, FaultSpec
from netem.topology.link_model import LinkSpec
from netem.topology.model import Lab
from netem.topology.names import NameRefusedError, Names
from netem.topology.settings import direction_impairment, kind_of, link_engine
from netem.topology.shape import changed, idle_keys
from netem.topology.spelling import suggestion
from netem.topology.switches import trim_how_problems
from netem.topology.wiring import node_of

_SERVICES = ("RC_", "UC_", "RD_", "UD_", "XRC_")  # before the name of an opcode
_OURS = ("host", "switch")  # kinds whose egress is ours, whoever impairs the link


def check_faults(lab: Lab, names: Names, problems: list[str]) -> None:
    """Note what is wrong with the faults of a lab."""
    kinds = {name: str(kind_of(node)) for name, node in lab.topology.nodes.items()}
    changes = []
    events = 0
    for fault in lab.faults:
        if isinstance(fault, EventSpec):
            wrong = list(schedule.problems(fault, names, kinds))
            problems += (f"{fault.location}.{line}" for line in wrong)
            if not wrong:
                problems += _tc_event_problems(lab, fault, names, kinds)
            events += schedule.count(fault)
            continue
        if isinstance(fault, FaultSpec):
            problems.extend(f"{fault.location}.{line}" for line in _fault_problems(fault))
        try:
            if isinstance(fault, FaultSpec):
                port = names.egress(fault.on)
                problems.extend(_tc_problems(lab, fault, port, names, kinds))
            else:
                names.egresses(fault.on)
                changes.append(fault)
        except NameRefusedError as error:
            problems.append(f"{fault.location}.on: {error}")
    if events > schedule.MAX_EVENTS:
        problems.append(f"faults: {events} events; at most {schedule.MAX_EVENTS}")
    _check_changes(lab, names, changes, problems)


def _check_changes(
    lab: Lab, names: Names, changes: list[ChangeSpec], problems: list[str]
) -> None:
    state: dict[str, Impairment] = {}
    for change in sorted(changes, key=lambda change: change.at):
        seen = set()
        for port in names.egresses(change.on):
            state[port] = changed(state.get(port) or _at_start(lab, names, port), change.set)
            seen |= set(idle_keys(state[port]))
        problems.extend(f"{change.location}.set.{key}: {why}" for key, why in sorted(seen))


def _at_start(lab: Lab, names: Names, port: str) -> Impairment:
    """Return what the lab's links do to what a port sends before any change."""
    return direction_impairment(lab, _link_at(lab, names, port), names, port)


def _link_at(lab: Lab, names: Names, port: str) -> LinkSpec:
    ends = {port, names.peers[port]}
    return next(link for link in lab.topology.links if set(link.endpoints) == ends)


def _tc_problems(
    lab: Lab, fault: FaultSpec, port: str, names: Names, kinds: dict[str, str]
) -> Iterator[str]:
    """Yield a fault on a link where nothing of ours looks at frames."""
    link = _link_at(lab, names, port)
    if link_engine(lab, link) == "tc" and not any(
        kinds[node_of(end)] in _OURS for end in link.endpoints
    ):
        yield (
            f"{fault.location}.on: {port} is impaired by tc, which knows no single packets;"
            " write engine: ours"
        )


def _tc_event_problems(
    lab: Lab, fault: EventSpec, names: Names, kinds: dict[str, str]
) -> Iterator[str]:
    """Yield an event on a link where nothing of ours could carry it out."""
    if fault.on in names.nodes:
        ports = [port for port in names.peers if node_of(port) == fault.on]
    else:
        ports = list(names.egresses(fault.on))
    for port in ports:
        link = _link_at(lab, names, port)
        if link_engine(lab, link) == "tc" and not any(
            kinds[node_of(end)] in _OURS for end in link.endpoints
        ):
            yield (
                f"{fault.location}.on: {port} is impaired by tc, which cannot take a link down"
                " or hold it; write engine: ours"
            )
            return


def _fault_problems(fault: FaultSpec) -> Iterator[str]:
    takes_time = fault.do in {"delay", "hold"}
    if takes_time and fault.delay is None:
        yield f"delay: missing; how long to {fault.do}, for example 1ms"
    if not takes_time and fault.delay is not None:
        yield f"delay: {fault.do} takes none; only delay and hold do"
    if fault.do == "trim":
        if fault.trim is not None:
            yield from (f"trim.{line}" for line in trim_how_problems(fault.trim))
    elif fault.trim is not None:
        yield f"trim: {fault.do} does not; write do: trim"
    where = fault.where
    if where.op is not None and where.op.upper() not in (ops := legal_ops()):
        plain = [op for op in ops if not op.startswith(_SERVICES)]
        yield f"where.op: {shown(where.op)} is unknown{suggestion(where.op.upper(), plain)}"
