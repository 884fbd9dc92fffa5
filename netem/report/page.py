"""The page of a run: everything in one HTML file, without scripts, fonts or anything loaded."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import msgspec

from netem.analysis.check.findings import Finding
from netem.analysis.check.judge import Judge
from netem.analysis.check.report import CheckReport, report
from netem.analysis.conversation import Conversation, conversations
from netem.analysis.drawings import svg
from netem.analysis.ladder import ladder
from netem.analysis.names import Names
from netem.analysis.reader import Captured, read_as_far_as_possible
from netem.analysis.records import CaptureReader, NoCaptureError
from netem.capture.runfolder import RunFolder, RunFolderError
from netem.report.fabric import picture
from netem.report.over_time import entropy_values, goodput, queues
from netem.report.pieces import nothing, table
from netem.topology.outcome import FlowResult, RunResult
from netem.topology.units import format_rate, format_size, format_time

_MOST_LADDERS = 8
_MOST_FINDINGS = 200
_BEFORE, _BEHIND, _ROWS = 8, 120, 24  # packets around a fault, rows of its ladder
_FRAMES_BEFORE, _FRAMES_BEHIND = 500, 4000  # records in which they are looked for

_STYLE = """
body{font:14px/1.45 sans-serif;max-width:1240px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid #ccc}
table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left}
td.n,th.n{text-align:right}svg{display:block;max-width:100%}
.pass{color:#1e8449}.fail,.violation{color:#c0392b}.inconclusive,.warning{color:#b9770e}
p.note{color:#666}
"""


class Section(NamedTuple):
    """One part of the page."""

    title: str
    body: str


def page(path: Path) -> str:
    """Return the page of the run in the folder `path`.

    Raise RunFolderError for a folder that holds no run.
    """
    folder = RunFolder(path)
    try:
        run = msgspec.json.decode(folder.result.read_bytes(), type=RunResult)
    except OSError as error:
        why = error.strerror or str(error)
        raise RunFolderError(f"{folder.result} cannot be read: {why}") from error
    except msgspec.DecodeError as error:
        raise RunFolderError(f"{folder.result} is no result of a run: {error}") from error
    hosts = sorted({one for flow in run.flows for one in (flow.source, flow.target)})
    sections = [
        Section("Fabric", picture(run.links, hosts) if run.links else nothing("no links")),
        Section("Flows", _flows(run)),
        Section("Faults and expectations", _faults(run)),
    ]
    try:
        sections += _of_capture(folder, run, hosts)
    except (OSError, NoCaptureError) as error:
        sections.append(Section("Capture", nothing(f"no capture: {error}")))
    sections += [
        Section("Queues", queues(folder)),
        Section("Entropy values", entropy_values(folder, run)),
    ]
    return _html(run, sections)


def _html(run: RunResult, sections: Iterable[Section]) -> str:
    why = f": {escape(run.why)}" if run.why else ""
    body = "".join(f"<h2>{escape(one.title)}</h2>{one.body}" for one in sections)
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(run.lab)}</title>'
        f"<style>{_STYLE}</style></head><body>"
        f"<h1>{escape(run.lab)}</h1>"
        f'<p><b class="{run.verdict}">{run.verdict}</b>{why} after '
        f"{format_time(round(run.duration))} emulated, engine {escape(run.engine)}, "
        f"seed {run.seed}, dilation {run.dilation}; capture: {run.capture.frames} frames"
        f"{'' if run.capture.complete else ', incomplete: ' + escape(run.capture.remark)}</p>"
        f"{body}</body></html>\n"
    )


def _flows(run: RunResult) -> str:
    if not run.flows:
        return nothing("no flows")
    columns = (
        "flow", "op", ">size", ">done", ">goodput", ">packets", ">again", ">NAK", ">CNP",
        "result",
    )  # fmt: skip
    rows = [
        (
            flow.flow,
            flow.op,
            format_size(flow.size),
            f"{flow.completed}/{flow.count}",
            "-" if flow.goodput is None else format_rate(round(round(flow.goodput), -6)),
            flow.packets,
            flow.retransmissions,
            flow.naks + flow.rnr_naks,
            flow.cnps,
            _ended(flow),
        )
        for flow in run.flows
    ]
    return table(columns, rows)


def _ended(flow: FlowResult) -> str:
    """Return how the messages of a flow ended, and the first error in words."""
    counts = ", ".join(f"{count} {status}" for status, count in flow.statuses.items())
    return "; ".join(filter(None, (counts, flow.first_error)))


def _faults(run: RunResult) -> str:
    parts = []
    if run.faults:
        rows = [(one.index, one.text, f"{one.fired} of {one.wanted}") for one in run.faults]
        parts.append(table((">fault", "what", ">fired"), rows))
    if run.expectations:
        rows_ = [(one.name, one.verdict, one.got) for one in run.expectations]
        parts.append(table(("expected", "verdict", "got"), rows_))
    return "".join(parts) or nothing("none")


def _of_capture(folder: RunFolder, run: RunResult, hosts: Sequence[str]) -> list[Section]:
    """Return what is drawn and said from the capture."""
    with folder.capture.open("rb") as file:
        judge = Judge(file)
        judge.run()
    return [
        Section("Goodput by plane", goodput(folder.capture, hosts)),
        Section("Around the faults", _ladders(folder.capture, run)),
        Section("Findings of check", _findings(report(judge))),
    ]


def _ladders(capture: Path, run: RunResult) -> str:
    """Return a ladder around the first packet that each fault touched."""
    firsts = _first_touched(capture, [fault.index for fault in run.faults[:_MOST_LADDERS]])
    near: dict[int, list[Captured]] = {number: [] for number in firsts}
    start = None
    with capture.open("rb") as file:
        for record in read_as_far_as_possible(CaptureReader(file)):
            start = record.at if start is None else start
            for number, first in firsts.items():
                if -_FRAMES_BEFORE <= record.number - first <= _FRAMES_BEHIND:
                    near[number].append(record)
    parts = []
    for fault in run.faults:
        place = _touched(conversations(near.get(fault.index, ()), Names()), fault.index)
        if place is None:
            continue
        conversation, index = place
        packets = conversation.packets[max(index - _BEFORE, 0) : index + _BEHIND]
        part = Conversation(conversation.left, conversation.right, packets)
        drawn = svg(ladder(part, start=start or 0, limit=_ROWS))
        parts.append(f"<h3>{escape(f'fault {fault.index}: {fault.text}')}</h3>{drawn}")
    return "".join(parts) or nothing("no fault touched a packet of RoCE or MRC")


def _said(fault: int) -> re.Pattern[str]:
    """Return what a comment says of a frame that a fault touched."""
    return re.compile(rf"(by |\()fault {fault}\b")


def _first_touched(capture: Path, faults: Iterable[int]) -> dict[int, int]:
    """Return the number of the first frame that each fault touched."""
    waiting = {fault: _said(fault) for fault in faults}
    found = {}
    with capture.open("rb") as file:
        for number, _, _, _, _, comment, _ in CaptureReader(file).records():
            if not waiting:
                break
            if "fault" in comment:
                for fault in [one for one, said in waiting.items() if said.search(comment)]:
                    found[fault] = number
                    del waiting[fault]
    return found


def _touched(found: Iterable[Conversation], fault: int) -> tuple[Conversation, int] | None:
    """Return the first packet of which the capture says that this fault touched it."""
    said = _said(fault)
    for conversation in found:
        for index, packet in enumerate(conversation.packets):
            if any(said.search(remark) for remark in packet.remarks):
                return conversation, index
    return None


def _findings(found: CheckReport) -> str:
    head = (
        f'<p><b class="{found.verdict.value}">{found.verdict.value}</b>: {found.violations} '
        f"violations, {found.warnings} warnings in {found.frames} frames"
        f"{': ' + escape(found.why) if found.why else ''}</p>"
    )
    shown: list[Finding] = found.findings[:_MOST_FINDINGS]
    if not shown:
        return head
    rows = [(one.frame, one.severity.value, one.clause, one.text) for one in shown]
    return head + table((">frame", "severity", "clause", "what"), rows)
