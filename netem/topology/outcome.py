"""What a run produced: the shape of run.json and of the reports that nodes send for it.

Absent is not zero: a figure that was not measured is None. Times are emulated nanoseconds.
"""

from typing import Literal

from msgspec import Struct, field

from transports.clock import Ns

SCHEMA_VERSION = 1
SAMPLE = "sample"  # an event that is a row of samples.jsonl

Verdict = Literal["pass", "fail", "inconclusive"]


class FlowReport(Struct, forbid_unknown_fields=True):
    """One end of one flow, as its node saw it."""

    flow: str
    role: Literal["requester", "responder"]
    posted: int = 0
    statuses: dict[str, int] = {}  # WcStatus name -> completions
    first_error: str = ""  # one line: status, QP, PSN, tries, elapsed
    bytes: int = 0  # payload of successful messages
    started: Ns | None = None
    finished: Ns | None = None
    packets: int = 0  # sent, retransmissions included
    retransmissions: int = 0
    timeouts: int = 0
    naks: int = 0  # sequence NAKs received (requester) or sent (responder)
    rnr_naks: int = 0
    duplicates: int = 0  # duplicate requests seen
    received: int = 0  # receive completions
    cnps: int = 0  # congestion notifications received
    rate_cuts: int = 0  # that followed
    corrupt_messages: int = 0  # payload not what the sender must have sent
    items_done: list[int] = []


class DirectionReport(Struct, forbid_unknown_fields=True):
    """One direction: frames + duplicated = delivered + lost + overflowed + queued."""

    direction: str  # "h0:p0->h1:p0"
    engine: str = "ours"
    frames: int = 0  # offered
    bytes: int = 0
    delivered: int = 0
    lost: int = 0
    cut: int = 0  # of these, because the link was down
    overflowed: int = 0
    corrupted: int = 0
    duplicated: int = 0
    reordered: int = 0
    marked: int = 0
    faulted: int = 0  # touched by a fault of the lab file; one that it dropped is also lost
    queued: int = 0  # still waiting when the report was made


class FaultReport(Struct, forbid_unknown_fields=True):
    """How often a fault of the lab file fired, beside how often it was to."""

    index: int
    text: str
    fired: int
    wanted: int
    touched: int | None = None  # frames, by one that lasts for a time: a link down, a hold


class ExpectationReport(Struct, forbid_unknown_fields=True):
    """One expectation and what came out."""

    name: str
    verdict: Verdict
    got: str


class Lateness(Struct, forbid_unknown_fields=True):
    """How late this host was, in wall nanoseconds; None in the simulator."""

    median: Ns | None = None
    worst: Ns | None = None
    remark: str = ""  # "this host was too slow: raise dilation", where it was


class CaptureReport(Struct, forbid_unknown_fields=True):
    """What the capture holds; `complete` is false where anything is missing from it."""

    file: str = ""
    frames: int = 0
    drops: int = 0
    complete: bool = True
    remark: str = ""


class CommandReport(Struct, forbid_unknown_fields=True):
    """How the command of a host or guest ended."""

    node: str
    command: str
    code: (
        int | None
    )  # as a shell's exit code, a signal's number below 0; None: it had not ended
    output: str  # the file with what it said, in the run folder


class NodeReport(Struct, forbid_unknown_fields=True):
    """What one node says at the end of a run."""

    node: str
    flows: list[FlowReport] = []
    directions: list[DirectionReport] = []
    faults: list[FaultReport] = []
    counters: dict[str, int] = {}  # refused packets by reason and the like; all that exist
    lateness: Lateness = field(default_factory=Lateness)


class FlowResult(Struct, forbid_unknown_fields=True):
    """One flow, both ends joined."""

    flow: str
    item: int
    transport: str
    op: str
    source: str
    target: str
    size: int
    count: int
    completed: int
    bytes: int
    statuses: dict[str, int]
    first_error: str
    duration: Ns | None
    goodput: float | None  # bit/s of payload
    packets: int
    retransmissions: int
    timeouts: int
    naks: int
    rnr_naks: int
    corrupt_messages: int
    verdict: Verdict
    cnps: int = 0  # congestion notifications that reached the senders of data
    rate_cuts: int = 0


class RunResult(Struct, forbid_unknown_fields=True):
    """run.json. Its JSON Schema ships beside the code that writes it."""

    schema_version: int
    lab: str
    seed: int
    dilation: int
    engine: Literal["sockets", "sim"]
    versions: dict[str, str]
    verdict: Verdict
    why: str  # one line; empty where all is well
    duration: Ns  # emulated
    flows: list[FlowResult]
    links: list[DirectionReport]
    faults: list[FaultReport]
    expectations: list[ExpectationReport]
    lateness: Lateness
    capture: CaptureReport
    counters: dict[str, dict[str, int]]
    commands: list[CommandReport] = []
