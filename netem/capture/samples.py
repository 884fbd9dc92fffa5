"""samples.jsonl: what queues held and queue pairs sent over time, in labs with `sample:`.

One JSON object a line, of any kind, in the order in which they came: by time for each node.
What is called `bytes`, `cnps`, `marked` or `placed` only grows: differences make rates.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from transports.clock import Ns

SCHEMA = Path(__file__).with_name("samples.schema.json")


class QpSample(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A queue pair that sends data; the last four only with congestion control."""

    ts_ns: Ns
    node: str
    flow: str
    qp: int
    bytes: int  # payload sent so far, retransmissions included
    rate: int | None = None  # bit/s that it may send; the line's while nothing slows it down
    target: int | None = None  # bit/s, the rate that it comes back to
    alpha_ppm: int | None = None  # millionths; 0 while nothing slows it down
    cnps: int | None = None  # received so far


class QueueSample(msgspec.Struct, forbid_unknown_fields=True, rename={"class_": "class"}):
    """One class at one port of a switch, while frames wait in it."""

    ts_ns: Ns
    node: str
    port: str
    class_: int
    waiting: int  # bytes, as thresholds count them
    marked: int  # frames so far
    paused: int  # 1: a pause is being obeyed


class PlaneSample(msgspec.Struct, forbid_unknown_fields=True):
    """A plane by which MRC data comes to a host."""

    ts_ns: Ns
    node: str
    plane: int
    placed: int  # payload written to memory so far, each byte once


Sample: TypeAlias = QpSample | QueueSample | PlaneSample


def read_samples(path: Path) -> Sequence[Sample]:
    """Return the samples of a run, without a last line that was cut."""
    found: list[Sample] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        if b'"waiting"' in line:
            found.append(msgspec.json.decode(line, type=QueueSample))
        elif b'"placed"' in line:
            found.append(msgspec.json.decode(line, type=PlaneSample))
        else:
            found.append(msgspec.json.decode(line, type=QpSample))
    return found


def samples_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line, as samples.schema.json must have it."""
    kinds, components = msgspec.json.schema_components((QpSample, QueueSample, PlaneSample))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a line of samples.jsonl of fabriclab",
        "oneOf": list(kinds),
        "$defs": components,
    }
