"""What may be asked of a node: the messages of the control protocol as types.

The protocol itself, its limits and the shape of each reply are in this package's README.md. One
line is one JSON object; `do` names the call. Unknown calls, unknown fields and values out of
range are refused with the path of the field, by msgspec and by `fields_of` below.
"""

from math import isfinite
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from netem.impair.model import (
    Distribution,
    FourState,
    GilbertElliott,
    Loss,
    RandomLoss,
)
from netem.topology.plan import FaultPlan, WorkPlan
from netem.topology.units import MAX_TIME
from transports.clock import Ns

MAX_REQUEST = 1 << 16  # bytes of one request line; the largest sensible one has a few hundred

RequestId = Annotated[int, Meta(ge=0, lt=1 << 53)]


class RequestError(Exception):
    """A request that is refused. The message is one line and says which field and why."""


class Call(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="do"):
    """What every request carries: `id` comes back in its reply."""

    id: RequestId


class Hello(Call, frozen=True, kw_only=True, tag="hello"):
    """Who are you? With `events`, this connection gets the node's events from now on."""

    events: bool = False


class Start(Call, frozen=True, kw_only=True, tag="start"):
    """Begin at `at`, a reading of CLOCK_MONOTONIC in wall nanoseconds: emulated time zero."""

    at: Annotated[int, Meta(ge=0)]


class Stop(Call, frozen=True, kw_only=True, tag="stop"):
    """End in order and report."""


class ImpairmentChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of an Impairment to change; what is not given stays as it is.

    Beside them `down`: whether the link is taken down in this direction, and `carrier`: whether
    the node then knows (a switch chooses its paths without the port). A `slot` is said by lab
    files alone, and stays.
    """

    delay: Ns | UnsetType = UNSET
    jitter: Ns | UnsetType = UNSET
    delay_corr: float | UnsetType = UNSET
    distribution: Distribution | UnsetType = UNSET
    loss: Loss | UnsetType | None = UNSET
    ecn: bool | UnsetType = UNSET
    corrupt: float | UnsetType = UNSET
    corrupt_corr: float | UnsetType = UNSET
    corrupt_from: int | UnsetType | None = UNSET
    duplicate: float | UnsetType = UNSET
    duplicate_corr: float | UnsetType = UNSET
    reorder: float | UnsetType = UNSET
    reorder_corr: float | UnsetType = UNSET
    gap: int | UnsetType = UNSET
    rate: int | UnsetType | None = UNSET
    overhead: int | UnsetType = UNSET
    limit: int | UnsetType | None = UNSET
    keep_order: bool | UnsetType = UNSET
    down: bool | UnsetType = UNSET
    carrier: bool | UnsetType = UNSET


class Impair(Call, frozen=True, kw_only=True, tag="impair"):
    """Read, change or reset what is done to frames that port `on` sends; says what is in force.

    `on` is a port of this node, or the kernel end that faces one ("h1:p0"), for which this node
    impairs at ingress. `clear` goes back to the plan's values, before `set` is applied. `for`
    says how long `set` holds, in emulated nanoseconds; see netem.impair.layers.
    """

    on: str
    set: ImpairmentChange | None = None
    clear: bool = False
    for_: Annotated[int, Meta(ge=1, le=MAX_TIME)] | None = msgspec.field(
        name="for", default=None
    )


class Fault(Call, frozen=True, kw_only=True, tag="fault"):
    """Add one fault to the port that its `on` names, from the next frame on."""

    fault: FaultPlan


class Post(Call, frozen=True, kw_only=True, tag="post"):
    """Post more work on the requester of a flow of this node."""

    flow: str
    work: WorkPlan


class Release(Call, frozen=True, kw_only=True, tag="release"):
    """Work that waits for `item` of the workload list may begin."""

    item: Annotated[int, Meta(ge=0)]


class Hear(Call, frozen=True, kw_only=True, tag="hear"):
    """The end of `flow` with that role has said something: a `setup` of another's events."""

    flow: str
    role: Literal["requester", "responder"]
    says: str


class Stats(Call, frozen=True, kw_only=True, tag="stats"):
    """The report of this moment."""


Request = Hello | Start | Stop | Impair | Fault | Post | Release | Hear | Stats
CALLS = ("hello", "start", "stop", "impair", "fault", "post", "release", "hear", "stats")


class _Identified(Struct):
    """As much of a refused request as its reply needs."""

    id: RequestId


_requests = msgspec.json.Decoder(Request)
_identified = msgspec.json.Decoder(_Identified)


def parse_request(line: bytes) -> Request:
    """Return the request on one line; raise RequestError for anything else."""
    try:
        return _requests.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        legal = f"; legal are {', '.join(CALLS)}" if "`$.do`" in str(error) else ""
        raise RequestError(one_line(str(error)) + legal) from None


def parse_id(line: bytes) -> int | None:
    """Return the id of a request that may be wrong in every other way, or None."""
    try:
        return _identified.decode(line).id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def one_line(text: str) -> str:
    """Return `text` as one line of bounded length, fit for a reply or a log."""
    return " ".join(text.split())[:500]


def fields_of(change: ImpairmentChange) -> dict[str, object]:
    """Return the fields that are given; raise RequestError for a bad value."""
    found = {
        name: value
        for name in change.__struct_fields__
        if (value := getattr(change, name)) is not UNSET
    }
    for name, value in found.items():
        _check(f"set.{name}", value)
    return found


def _check(path: str, value: object) -> None:
    """Refuse probabilities outside 0 to 1, negative times and sizes, a rate of nothing."""
    match value:
        case RandomLoss() | GilbertElliott() | FourState():
            for name in value.__struct_fields__:
                _check(f"{path}.{name}", getattr(value, name))
        case float() if not (isfinite(value) and 0 <= value <= 1):
            raise RequestError(f"{path} is {value}, legal is 0 to 1")
        case int() if path in {"set.rate", "set.limit"} and value <= 0:
            raise RequestError(f"{path} is {value}, legal is 1 or more, or null")
        case int() if path == "set.overhead":
            if not -128 <= value <= 65_535:
                raise RequestError(f"{path} is {value}, legal is -128 to 65535")
        case int() if not 0 <= value < 1 << 62:
            raise RequestError(f"{path} is {value}, legal is 0 or more")
