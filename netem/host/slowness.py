"""Whether this host was too slow for a lab, by what one sees of it, and what that spoils.

* Frames found the buffer of a node full, which no lab asks for.
* A lossless class lost frames that its headroom was enough for: it was told of too late, or
  obeyed too late. What was lost is then no figure of the lab.
* The timers of a node were late, half of them by more than a quarter of the shortest ACK
  timeout of the lab, so that a peer's patience was a matter of the host's load.
* A requester gave up, and some timer was later than the whole patience of the lab.

Short of that, a figure of time that is not what was expected means nothing where some timer was
later than a tenth of the whole run.

Where DCQCN paces what is sent there is one thing more, which spoils nothing that holds: a timer
later than the clock by which rates come back. It explains a queue that is too long.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from netem.topology.headroom import LosslessPort, lossless_ports
from netem.topology.outcome import Lateness, NodeReport
from netem.topology.plan import Plan
from netem.topology.units import format_time
from transports.clock import MS, Ns
from transports.roce.timers import ack_timeout

TENTH = 10  # of a run, by which its figures of time may be wrong
GAVE_UP = "RETRY_EXC_ERR"  # the status of a requester that ran out of retries


class Slowness(NamedTuple):
    """The lateness of the slowest node, with a remark where the host was too slow."""

    lateness: Lateness
    is_lossy: bool = False  # frames of a lossless class were lost by it
    doubt: str = ""  # why a figure of time that is wrong may be the host's fault
    pace: str = ""  # why queues and rates may be none of the lab's


def slowness(plan: Plan, reports: Sequence[NodeReport], duration: Ns) -> Slowness:
    """Return how late the host was in a run of so much emulated time, and what came of it."""
    known = [r.lateness for r in reports if r.lateness.worst is not None or r.lateness.remark]
    pace = _late_pace(plan, reports)
    latest = max(
        known, key=lambda late: (bool(late.remark), late.worst or 0), default=Lateness()
    )
    doubt = ""
    if (worst := latest.worst or 0) * TENTH > duration * plan.dilation:
        doubt = f"timers were up to {_rough(worst)} late, too much for so short a run"
    lossy = _late_pauses(plan, reports)
    if latest.remark and not lossy:
        return Slowness(latest, doubt=doubt, pace=pace)
    why = lossy or _full_buffers(reports) or _late_timers(plan, reports)
    if not why:
        return Slowness(latest, doubt=doubt, pace=pace)
    remark = f"this host was too slow: {why}; raise dilation"
    if lossy:
        remark += f" (now {plan.dilation})"
    return Slowness(replace(latest, remark=remark), bool(lossy), doubt, pace)


def _late_pauses(plan: Plan, reports: Sequence[NodeReport]) -> str:
    """Say which lossless class has lost most for no reason but lateness; "" if none has.

    In virtual time nothing is late, and nothing is said.
    """
    counters = {report.node: report.counters for report in reports}
    late = {report.node: report.lateness for report in reports}
    losses: list[tuple[int, LosslessPort]] = [
        (lost, one)
        for one in lossless_ports(plan)
        if {one.switch, one.peer} <= late.keys()
        and late[one.switch].worst is not None
        and (lost := counters[one.switch].get(f"{one.port}.pg{one.number}.DropPkts", 0))
    ]
    if not losses:
        return ""
    lost, (_, most) = sum(lost for lost, _ in losses), max(losses, key=lambda pair: pair[0])
    others = " and others" if len(losses) > 1 else ""
    group = f"{most.port}.pg{most.number}"
    has, needed = (
        counters[most.switch][f"{group}.Headroom{what}"] for what in ("Bytes", "NeededBytes")
    )
    worst = max((most.switch, most.peer), key=lambda end: late[end].worst or 0)
    frames = "1 frame" if lost == 1 else f"{lost} frames"
    return (
        f"headroom_exceeded at {most.switch}:{most.port} class {most.number}{others},"
        f" {frames} lost: timers of {worst} were up to {_rough(late[worst].worst)} late"
        f" ({has} bytes are enough for the cable, {needed} were needed)"
    )


def _late_pace(plan: Plan, reports: Sequence[NodeReport]) -> str:
    """Say which timer was later than a step of DCQCN's; "" if none was, or nobody paces."""
    steps = [
        qp.congestion.dcqcn.rpg_time_reset
        for node in plan.nodes
        for qp in node.qps
        if qp.congestion is not None
    ]
    late, node = max(((r.lateness.worst or 0, r.node) for r in reports), default=(0, ""))
    if not steps or late <= min(steps) * plan.dilation:
        return ""
    return (
        f"timers of {node} were up to {_rough(late)} late, {format_time(late // plan.dilation)}"
        f" of the lab's time, where DCQCN has steps of {format_time(min(steps))}"
    )


def _rough(late: Ns | None) -> str:
    """Write a time to a tenth of a millisecond, where it is as long as that."""
    tenth = MS // 10
    return format_time(late // tenth * tenth if late and late >= tenth else late or 0)


def _full_buffers(reports: Sequence[NodeReport]) -> str:
    lost = {report.node: report.counters.get("receive_drops", 0) for report in reports}
    if not (drops := sum(lost.values())):
        return ""
    worst = max(lost, key=lambda node: lost[node])
    frames = "1 frame" if drops == 1 else f"{drops} frames"
    return f"{frames} found a buffer full, most of them at {worst}"


def _late_timers(plan: Plan, reports: Sequence[NodeReport]) -> str:
    timeouts = (ack_timeout(qp.timeout) for node in plan.nodes for qp in node.qps)
    shortest = min((timeout for timeout in timeouts if timeout is not None), default=None)
    if shortest is None or not reports:
        return ""
    patience = shortest * plan.dilation
    late = max(reports, key=lambda report: report.lateness.median or 0)
    if (median := late.lateness.median or 0) > patience // 4:
        return f"timers of {late.node} were {format_time(median)} late"
    late = max(reports, key=lambda report: report.lateness.worst or 0)
    gave_up = any(GAVE_UP in flow.statuses for report in reports for flow in report.flows)
    if gave_up and (worst := late.lateness.worst or 0) > patience:
        return f"timers of {late.node} were up to {format_time(worst)} late"
    return ""
