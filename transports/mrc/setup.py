"""How two ends of a queue pair introduce themselves, out of band. mrc-emu/1, 12.7.

MRC leaves this to applications; the public benchmark uses a socket, TCP port 18515. Each
message is a length of four bytes and a JSON object:

    connecting side   offer ------->                       an answer has its own limits, and
    listening side          <------- answer                the smaller MTU
    both                   <- ready ->                     when it can receive
                           <- error ->                     why not, in words; the end

A `Setup` is one side. `Settled` is told when both offers are known: the owner takes its queue
pair to RTR and calls `proceed`, which says ready. `Ready` is told when both have: the queue
pair goes to RTS. What comes later, a `bye` or the end of the connection, means nothing to it.

What does not fit is said in words, to the peer as `error`, to the owner as `failure`. Beside
the keys of 12.7 there is `readings`: how disputed points are read (12.1). Who does not say so
has the profile's; a difference that a peer would notice is refused by name.
"""

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import ip_address
from typing import Any, NamedTuple

from transports.clock import Ns, S
from transports.mrc.profiles import LAYOUTS, MAX_PLANES
from transports.mrc.srv6 import Row
from transports.roce.attributes import PATH_MTUS
from transports.roce.exchange.dialogue import HOLD, Dialogue, Script, Step, Want
from wire.codec import DecodeError
from wire.mrc.options import PORTS

PROFILE = "mrc-emu/1"
PORT = 18515  # TCP, of the listening side
MAX_MESSAGE = 65536  # bytes of JSON
TIMEOUT: Ns = 5 * S  # by the wall's clock; the owner's to keep: the queue pair goes to ERROR
PROTOCOL_VERSION = 1
MAX_REGIONS = 256
MAX_REASON = 1000  # characters of an error
LENGTH = 4  # bytes before each message
# What of the readings a peer would notice, as the profile has them.
READINGS: dict[str, str | int | bool] = {
    "bth_bit_order": "m_se",
    "ev_split": "label_high",
    "eeth_op_shift": 2,
    "icrc": True,
    "port_mask_base": 0,
    "ack_msn": "count",
}


class Region(NamedTuple):
    """Memory that the peer may write to."""

    va: int
    length: int
    rkey: int


@dataclass(frozen=True)
class SetupParameters:
    """What one side says of itself. `addrs` and `srv6_rows` are by plane; None: none there."""

    qpn: int
    start_psn: int
    addrs: tuple[str | None, ...]
    srv6_rows: tuple[Row | None, ...] = ()  # needed with ev_format srv6
    udp_dport: int = PORTS[0]
    ev_format: str = "stev32"
    path_mtu: int = 4096
    max_wimm_dest: int = 128
    mpr_dest: int = 8  # in units of 128 PSNs
    dynamic_mpr: bool = False
    trim_nack: bool = True
    svc_time: bool = False
    time_dilation: float = 1.0
    mrs: tuple[Region, ...] = ()
    readings: dict[str, str | int | bool] = field(default_factory=lambda: dict(READINGS))
    protocol_versions: tuple[int, ...] = (PROTOCOL_VERSION,)


class Settled(NamedTuple):
    """Both sides are known. `path_mtu` is what both use; `dynamic_mpr` if both can."""

    theirs: SetupParameters
    path_mtu: int
    dynamic_mpr: bool


class Ready(NamedTuple):
    """Both sides can receive."""


class SetupRole(Enum):
    """Who speaks first."""

    CONNECTING = "connecting"
    LISTENING = "listening"


class SetupError(DecodeError):
    """What the peer said does not fit. The text goes to the peer, too."""


class PeerRefusedError(DecodeError):
    """The peer said `error`: it is not answered."""


class Setup(Dialogue[Settled | Ready]):
    """One side of a set-up; see `Dialogue` for how it is driven. Done when both are ready."""

    def __init__(self, role: SetupRole, ours: SetupParameters) -> None:
        self.role = role
        self.ours = ours
        super().__init__()

    def refuse(self, why: str) -> None:
        """End it for a reason of our own, and tell the peer. Nothing, if it is over."""
        if not self.is_over:
            self._send_error(why)
            self._fail(why)

    def _script(self) -> Script:
        try:
            yield from self._dialogue()
        except SetupError as wrong:
            self._send_error(str(wrong))
            raise

    def _dialogue(self) -> Script:
        if self.role is SetupRole.CONNECTING:
            self._send(_offer(self.ours, "offer"))
            theirs = yield from self._hear_parameters("answer")
        else:
            theirs = yield from self._hear_parameters("offer")
        mtu = min(self.ours.path_mtu, theirs.path_mtu)
        _check_match(self.ours, theirs)
        if self.role is SetupRole.LISTENING:
            self._send(_offer(replace(self.ours, path_mtu=mtu), "answer"))
        both = self.ours.dynamic_mpr and theirs.dynamic_mpr
        self._tell(Settled(theirs, mtu, both))
        yield HOLD
        self._send({"type": "ready", "profile": PROFILE})
        yield from self._hear("ready")
        self._tell(Ready())

    def _send(self, message: dict[str, Any]) -> None:  # Any: JSON
        text = json.dumps(message, separators=(",", ":")).encode()
        self._say(len(text).to_bytes(LENGTH, "big") + text)

    def _send_error(self, why: str) -> None:
        """Say why not; a text that quotes the peer at length is cut."""
        self._send({"type": "error", "profile": PROFILE, "reason": why[:MAX_REASON]})

    def _hear(self, wanted: str) -> Step[dict[str, Any]]:
        """Return the next message, which is to be of type `wanted`."""
        head = yield Want(LENGTH, f"the length of {_a(wanted)}")
        length = int.from_bytes(head, "big")
        if not 0 < length <= MAX_MESSAGE:
            raise SetupError(f"a message of {length} bytes, legal are 1 to {MAX_MESSAGE}")
        body = yield Want(length, _a(wanted))
        message = _object(body)
        if message.get("type") == "error":
            raise PeerRefusedError(f"the peer refuses: {message.get('reason')}")
        if (profile := message.get("profile")) != PROFILE:
            raise SetupError(f"profile is {profile!r}, ours is {PROFILE!r}")
        if (kind := message.get("type")) != wanted:
            raise SetupError(f"type is {kind!r}, {wanted!r} was awaited")
        return message

    def _hear_parameters(self, wanted: str) -> Step[SetupParameters]:
        message = yield from self._hear(wanted)
        return _parameters(message, wanted)


# Integers of an offer or an answer: name and inclusive range.
_INTEGERS = {
    "qpn": (0x10, 0xFFFFFF),
    "start_psn": (0, 0xFFFFFF),
    "max_wimm_dest": (0, 0xFFFF),
    "mpr_dest": (1, 255),
}
_CAPS = ("dynamic_mpr", "trim_nack", "svc_time")


def _offer(ours: SetupParameters, kind: str) -> dict[str, Any]:
    """Return the message that says `ours`."""
    message: dict[str, Any] = {
        "type": kind,
        "profile": PROFILE,
        **{name: getattr(ours, name) for name in _INTEGERS},
        "addrs": list(ours.addrs),
        "udp_dport": ours.udp_dport,
        "ev_format": ours.ev_format,
        "path_mtu": ours.path_mtu,
        "caps": {name: getattr(ours, name) for name in _CAPS},
        "time_dilation": ours.time_dilation,
        "mrs": [region._asdict() for region in ours.mrs],
        "readings": ours.readings,
    }
    if ours.srv6_rows:
        message["srv6_rows"] = [row and row._asdict() for row in ours.srv6_rows]
    if kind == "offer":
        message["protocol_versions"] = list(ours.protocol_versions)
    else:
        message["protocol_version"] = PROTOCOL_VERSION
    return message


def _object(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SetupError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise SetupError("not a JSON object")
    return message


def _parameters(message: dict[str, Any], kind: str) -> SetupParameters:
    """Return what a peer says of itself. Unknown keys are ignored."""
    numbers = {name: _integer(message, name, *bounds) for name, bounds in _INTEGERS.items()}
    caps = _value(message, "caps", dict)
    dport = _integer(message, "udp_dport", 0, 0xFFFF)
    if dport not in PORTS:
        raise SetupError(f"udp_dport is {dport}, legal are {PORTS[0]} and {PORTS[1]}")
    mtu = _integer(message, "path_mtu", PATH_MTUS[0], PATH_MTUS[-1])
    if mtu not in PATH_MTUS:
        raise SetupError(f"path_mtu is {mtu}, legal are {', '.join(map(str, PATH_MTUS))}")
    if kind == "offer":
        said = _value(message, "protocol_versions", list)
    else:
        said = [_integer(message, "protocol_version", 0, 0xFFFF)]
    dilation = message.get("time_dilation")
    if isinstance(dilation, bool) or not isinstance(dilation, int | float):
        raise SetupError("time_dilation is missing, or no number")
    return SetupParameters(
        qpn=numbers["qpn"],
        start_psn=numbers["start_psn"],
        max_wimm_dest=numbers["max_wimm_dest"],
        mpr_dest=numbers["mpr_dest"],
        addrs=_addresses(_value(message, "addrs", list)),
        srv6_rows=tuple(_row(row) for row in _list(message, "srv6_rows", MAX_PLANES)),
        udp_dport=dport,
        ev_format=str(_value(message, "ev_format", str)),
        path_mtu=mtu,
        dynamic_mpr=caps.get("dynamic_mpr") is True,
        trim_nack=caps.get("trim_nack") is True,
        svc_time=caps.get("svc_time") is True,
        time_dilation=dilation,
        mrs=tuple(_region(region) for region in _list(message, "mrs", MAX_REGIONS)),
        readings=_readings(message),
        protocol_versions=tuple(version for version in said if isinstance(version, int)),
    )


def _value(message: dict[str, Any], key: str, kind: type) -> Any:  # noqa: ANN401 - of `kind`
    value = message.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SetupError(f"{key} is {'missing' if value is None else 'no ' + kind.__name__}")
    return value


def _integer(message: dict[str, Any], key: str, low: int, high: int) -> int:
    value = int(_value(message, key, int))
    if not low <= value <= high:
        raise SetupError(f"{key} is {value}, legal is {low} to {high}")
    return value


def _list(message: dict[str, Any], key: str, most: int) -> list[Any]:
    """Return an optional list, which is bounded."""
    if key not in message:
        return []
    found = list(_value(message, key, list))
    if len(found) > most:
        raise SetupError(f"{key} has {len(found)} entries, legal are {most}")
    return found


def _addresses(said: list[Any]) -> tuple[str | None, ...]:
    if not 1 <= len(said) <= MAX_PLANES or not any(said):
        raise SetupError(f"addrs has {len(said)} planes, legal are 1 to {MAX_PLANES}")
    addresses: list[str | None] = []
    for plane, text in enumerate(said):
        try:
            addresses.append(None if text is None else str(ip_address(str(text))))
        except ValueError:
            raise SetupError(f"addrs[{plane}] is no address") from None
    return tuple(addresses)


def _row(said: object) -> Row | None:
    if said is None:
        return None
    if not isinstance(said, dict):
        raise SetupError("srv6_rows holds what is no object")
    return Row(_integer(said, "t0", 0, 255), _integer(said, "downlink", 0, 255))


def _region(said: object) -> Region:
    if not isinstance(said, dict):
        raise SetupError("mrs holds what is no object")
    return Region(
        _integer(said, "va", 0, (1 << 64) - 1),
        _integer(said, "length", 0, (1 << 64) - 1),
        _integer(said, "rkey", 0, (1 << 32) - 1),
    )


def _readings(message: dict[str, Any]) -> dict[str, str | int | bool]:
    """Return what is said of the points that we know, over the profile's own readings."""
    said = _value(message, "readings", dict) if "readings" in message else {}
    found = dict(READINGS)
    for name, default in READINGS.items():
        value = said.get(name, default)
        if type(value) is not type(default):
            raise SetupError(f"readings.{name} is no {type(default).__name__}")
        found[name] = value
    return found


def _check_match(ours: SetupParameters, theirs: SetupParameters) -> None:
    """Refuse what both ends must have alike."""
    if PROTOCOL_VERSION not in theirs.protocol_versions:
        said = ", ".join(map(str, theirs.protocol_versions))
        raise SetupError(f"protocol versions are {said or 'none'}; we speak {PROTOCOL_VERSION}")
    for name in READINGS:
        there, here = theirs.readings[name], ours.readings[name]
        if there != here:
            raise SetupError(
                f"readings.{name} is {_shown(there)} there, {_shown(here)} here; give both ends"
                " the same"
            )
    if theirs.ev_format != ours.ev_format or ours.ev_format not in LAYOUTS:
        raise SetupError(f"ev_format is {theirs.ev_format!r} there, {ours.ev_format!r} here")
    if theirs.time_dilation != ours.time_dilation:
        raise SetupError(
            f"time_dilation is {theirs.time_dilation:g} there, {ours.time_dilation:g} here"
        )
    pairs = zip(ours.addrs, theirs.addrs, strict=False)
    if not any(one is not None and other is not None for one, other in pairs):
        raise SetupError("addrs have no plane in common")
    if theirs.ev_format == "srv6":
        rows = (*theirs.srv6_rows, *(None,) * MAX_PLANES)
        for plane, address in enumerate(theirs.addrs):
            if address is not None and rows[plane] is None:
                raise SetupError(f"srv6_rows has none for plane {plane}, and srv6 needs it")


def _shown(value: str | int | bool) -> str:
    return json.dumps(value).strip('"')


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeo' else 'a'} {kind}"
