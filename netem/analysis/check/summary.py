"""What is left of a flow when it has been judged: the row that a person reads."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

import msgspec

from netem.analysis.check.flow import Flow
from netem.analysis.check.mrc import MrcJudge
from netem.analysis.check.roce import RoceJudge
from netem.analysis.check.writes import MrcFlow
from netem.analysis.reader import printable
from netem.analysis.records import Interface


class FlowSummary(msgspec.Struct, frozen=True):
    """All packets from one address to one queue pair of another, where they were seen first."""

    source: str
    target: str
    qp: int
    service: str  # RC, UC, UD, MRC ...; empty for CNPs alone
    interface: str
    first_frame: int
    packets: int
    payload: int  # bytes, retransmissions included
    retransmissions: int
    naks: int
    rnr_naks: int
    cnps: int
    marked: int  # packets with CE, on all links
    damaged: int  # packets with a wrong ICRC
    dropped: int  # packets that the capture says were killed
    duration_ns: int


def summaries(
    roce: RoceJudge, mrc: MrcJudge, interfaces: Sequence[Interface]
) -> Iterator[FlowSummary]:
    """Yield a row for each flow that has packets."""
    for flow in roce.flows.values():
        if flow.packets:
            said = flow.responses
            yield _summary(
                flow, interfaces, flow.service, again=flow.requests.again, naks=said.naks,
                rnrs=said.rnrs, cnps=flow.cnps,
            )  # fmt: skip
    for one in mrc.flows.values():
        if one.packets:
            yield _summary(one, interfaces, "MRC", again=one.again, naks=one.naks)


def _summary(
    flow: Flow | MrcFlow,
    interfaces: Sequence[Interface],
    service: str,
    *,
    again: int,
    naks: int,
    rnrs: int = 0,
    cnps: int = 0,
) -> FlowSummary:
    return FlowSummary(
        str(ip_address(flow.source)),
        str(ip_address(flow.target)),
        flow.qp,
        service,
        printable(interfaces[flow.where].name),
        flow.first,
        flow.packets,
        flow.payload,
        again,
        naks,
        rnrs,
        cnps,
        flow.marked,
        flow.damaged,
        flow.killed,
        flow.ended - flow.began,
    )
