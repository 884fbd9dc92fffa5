"""What `check` has to say about a capture, as JSON has it."""

from enum import StrEnum
from ipaddress import ip_address

import msgspec

from netem.analysis.check.findings import Finding, Severity
from netem.analysis.check.flow import Flow
from netem.analysis.check.judge import Judge
from netem.analysis.check.writes import MrcFlow

SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """In one word."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"  # a violation
    INCONCLUSIVE = "inconclusive"  # nothing to judge, or not all could be read


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


class CheckReport(msgspec.Struct, frozen=True):
    """The verdict on one file."""

    schema_version: int
    verdict: Verdict
    why: str  # what is to be said of the verdict; empty where it says all
    frames: int
    violations: int
    warnings: int
    icrc_unchecked: int  # packets of which the capture does not hold all
    flows: list[FlowSummary]
    findings: list[Finding]
    left_out: int  # findings of a kind that has many


def report(judge: Judge) -> CheckReport:
    """Return what a judge found, when it has run."""
    findings = judge.findings
    violations = findings.count(Severity.VIOLATION)
    why = _why(judge)
    verdict = Verdict.INCONCLUSIVE if why else Verdict.PASS
    return CheckReport(
        SCHEMA_VERSION,
        Verdict.FAIL if violations else verdict,
        why,
        judge.packets,
        violations,
        findings.count(Severity.WARNING),
        judge.roce.unchecked + judge.mrc.unchecked,
        [
            *(_of_roce(judge, flow) for flow in judge.roce.flows.values() if flow.packets),
            *(_of_mrc(judge, flow) for flow in judge.mrc.flows.values() if flow.packets),
        ],
        sorted(findings.kept, key=lambda one: one.frame),
        sum(findings.counts.values()) - len(findings.kept),
    )


def _why(judge: Judge) -> str:
    """Return what keeps a capture without violations from passing."""
    reader = judge.reader
    told = [reader.problem] if reader.problem else []
    if reader.skipped:
        told.append(f"{reader.skipped} packets cannot be read: their blocks are damaged")
    told += [
        f"{count} packets of link type {link_type}, which is not read here"
        for link_type, count in judge.unread.items()
    ]
    if judge.roce.left_out:
        told.append(f"{judge.roce.left_out} packets of more flows than are remembered")
    of_roce = judge.roce.packets + judge.mrc.packets
    if of_roce and judge.roce.unchecked + judge.mrc.unchecked >= of_roce:
        told.append("no packet is there to its end: no ICRC could be checked")
    if not judge.packets:
        told.insert(0, "no packets captured")
    elif not judge.judged:
        told.insert(0, f"nothing to judge in {judge.packets} packets")
    return "; ".join(told)


def _of_roce(judge: Judge, flow: Flow) -> FlowSummary:
    said = flow.responses
    return _summary(
        judge, flow, flow.service, again=flow.requests.again, naks=said.naks, rnrs=said.rnrs,
        cnps=flow.cnps,
    )  # fmt: skip


def _of_mrc(judge: Judge, flow: MrcFlow) -> FlowSummary:
    return _summary(judge, flow, "MRC", again=flow.again, naks=flow.naks)


def _summary(
    judge: Judge,
    flow: Flow | MrcFlow,
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
        judge.reader.interfaces[flow.where].name,
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
