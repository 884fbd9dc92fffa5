"""Figures that expectations are about: of flows, of links, and of what switches counted.

A figure that nobody could measure is None: paused time in a lab without lossless classes is 0,
but the depth of queues in a lab without switches is nothing at all.
"""

from collections.abc import Iterable, Sequence

from netem.topology.outcome import (
    DirectionReport,
    FaultReport,
    FlowReport,
    FlowResult,
    NodeReport,
)
from netem.topology.plan import Plan
from transports.clock import S

Figures = dict[str, float | None]

SUMS = (
    "completed", "packets", "retransmissions", "timeouts", "naks", "rnr_naks",
    "corrupt_messages", "cnps", "rate_cuts",
)  # fmt: skip
FORWARDS = ("switch", "linux")
# Counters of nodes: where they are counted ("q3", "pg3" without their numbers, "" for the node
# or a port), and what begins the last part of their names. See netem.switch.report, netem.host.
_COUNTERS = {
    "marked": ("q", "EcnMarkedPkts"),
    "trimmed": ("", "TrimPkts"),
    "dropped": ("q", "DropPkts"),
    "pauses": ("", "PfcTx"),
    "paused": ("", "PausedNs"),
    "storms": ("q", "StormDetected"),
    "encapsulated": ("srv6", "encapsulated"),
    "tunnelled": ("overlay", "data_sent"),
    "sessions": ("overlay", "sessions"),
    "roams": ("overlay", "moves"),
    "cookies": ("overlay", "refused_cookie_sent"),
    "tunnel_refused": ("overlay", "refused_"),
}
_HEADROOM_DROPS = "pg", "DropPkts"
_DEPTH = "q", "WatermarkBytes"
_SETTLED = "q", "SettledBytes"
_TRIM_SENT = "q", "TrimSent"


def of_flows(flows: Sequence[FlowResult], ends: Iterable[FlowReport]) -> Figures:
    """Return the metrics of some flows together; `ends` are those of all flows."""
    names = {flow.flow for flow in flows}
    requesters = [end for end in ends if end.role == "requester" and end.flow in names]
    started = [end.started for end in requesters if end.started is not None]
    finished = [end.finished for end in requesters if end.finished is not None]
    duration = max(finished) - min(started) if started and finished else None
    sent = sum(flow.bytes for flow in flows)
    figures: Figures = {name: sum(getattr(flow, name) for flow in flows) for name in SUMS}
    figures["duration"] = duration
    figures["goodput"] = sent * 8 * S / duration if duration else None
    figures["fairness"] = _fairness(flows)
    return figures


def of_fabric(
    plan: Plan,
    reports: Sequence[NodeReport],
    links: Sequence[DirectionReport],
    faults: Iterable[FaultReport],
) -> Figures:
    """Return the metrics of links, switches and faults."""
    trims = {fault.index for fault in plan.faults if fault.do == "trim"}
    figures: Figures = {
        "lost": sum(link.lost for link in links),
        "cut": sum(link.cut for link in links),
        "paths_used": _paths_used(plan, links),
        "deepest_queue": max(_matching(reports, _DEPTH), default=None),
        "settled_queue": _settled(plan, reports),
    }
    for name, counter in _COUNTERS.items():
        figures[name] = sum(_matching(reports, counter))
    added = {
        "marked": sum(link.marked for link in links),
        "trimmed": sum(fault.fired for fault in faults if fault.index in trims),
        "dropped": sum(_matching(reports, _HEADROOM_DROPS))
        - sum(_matching(reports, _TRIM_SENT)),
    }
    for name, value in added.items():
        figures[name] = (figures[name] or 0) + value
    return figures


def _fairness(flows: Sequence[FlowResult]) -> float | None:
    """Return Jain's index: (sum of x)^2 / (n * sum of x^2). Jain, Chiu, Hawe, DEC-TR-301."""
    shares = [flow.goodput or 0.0 for flow in flows]
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def _settled(plan: Plan, reports: Sequence[NodeReport]) -> int | None:
    """Return what the fullest queue settled at: nothing, where samples found none waiting."""
    if plan.sample is None or all(node.kind != "switch" for node in plan.nodes):
        return None
    return max(_matching(reports, _SETTLED), default=0)


def _matching(reports: Iterable[NodeReport], counter: tuple[str, str]) -> Iterable[int]:
    """Return every counter of a place and a name in what the nodes report."""
    place, begin = counter
    return (
        value
        for report in reports
        for name, value in report.counters.items()
        if (parts := name.split("."))[-1].startswith(begin) and _place(parts) == place
    )


def _place(parts: Sequence[str]) -> str:
    """Return where a counter is counted: a queue, a lossless class, a layer; else ""."""
    if len(parts) < 2:
        return ""
    kind = parts[-2].rstrip("0123456789")
    if kind in {"e", "p"}:  # a port
        return ""
    return kind if kind in {"q", "pg"} else parts[-2]


def _paths_used(plan: Plan, links: Iterable[DirectionReport]) -> int:
    """Count the directions between two forwarding nodes that carried frames."""
    forwards = {node.name for node in plan.nodes if node.kind in FORWARDS}
    return sum(
        link.frames > 0
        and all(end.partition(":")[0] in forwards for end in link.direction.split("->"))
        for link in links
    )
