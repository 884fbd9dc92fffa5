"""What `check` has to say about a capture, as JSON has it."""

from enum import StrEnum

import msgspec

from netem.analysis.check.findings import Finding, Severity
from netem.analysis.check.judge import Judge
from netem.analysis.check.summary import FlowSummary

SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """In one word."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"  # a violation
    INCONCLUSIVE = "inconclusive"  # nothing to judge, or not all could be read


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
        judge.unchecked,
        judge.flows,
        sorted(findings.kept, key=lambda one: one.frame),
        sum(findings.counts.values()) - len(findings.kept),
    )


def _why(judge: Judge) -> str:
    """Return what keeps a capture without violations from passing."""
    reader = judge.reader
    told = ["interrupted, so only what was read is judged"] if judge.is_interrupted else []
    if reader.problem:
        told.append(reader.problem)
    if reader.skipped:
        told.append(f"{reader.skipped} packets cannot be read: their blocks are damaged")
    told += [
        f"{count} packets of link type {link_type}, which is not read here"
        for link_type, count in judge.unread.items()
    ]
    if judge.left_out:
        told.append(f"{judge.left_out} packets of more flows than are remembered")
    if judge.of_roce and judge.unchecked >= judge.of_roce:
        told.append("no packet is there to its end: no ICRC could be checked")
    if not judge.packets:
        told.insert(0, "no packets captured")
    elif not judge.judged:
        told.insert(0, f"nothing to judge in {judge.packets} packets")
    return "; ".join(told)
