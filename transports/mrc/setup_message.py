"""What an end of a queue pair says of itself in the set-up, as a JSON object. mrc-emu/1, 12.7.

An offer and an answer are alike but for the protocol versions: an offer has all, an answer the
one. Unknown keys are ignored. Beside the keys of 12.7 there is `readings`: how disputed points
are read (12.1); who does not say so has the profile's.
"""

import json
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, NamedTuple

from transports.mrc.profiles import MAX_PLANES
from transports.mrc.srv6 import Row
from transports.roce.attributes import PATH_MTUS
from wire.codec import DecodeError
from wire.mrc.options import PORTS

PROFILE = "mrc-emu/1"
PROTOCOL_VERSION = 1
MAX_REGIONS = 256
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


class SetupError(DecodeError):
    """What the peer said does not fit. The text goes to the peer, too."""


# Integers of an offer or an answer: name and inclusive range.
_INTEGERS = {
    "qpn": (0x10, 0xFFFFFF),
    "start_psn": (0, 0xFFFFFF),
    "max_wimm_dest": (0, 0xFFFF),
    "mpr_dest": (1, 255),
}
_CAPS = ("dynamic_mpr", "trim_nack", "svc_time")


def message_of(ours: SetupParameters, kind: str) -> dict[str, Any]:
    """Return the offer or the answer that says `ours`; `kind` is which."""
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


def read_object(body: bytes) -> dict[str, Any]:  # Any: JSON
    """Return the JSON object of a message. Raise SetupError for what is none."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SetupError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise SetupError("not a JSON object")
    return message


def parameters_of(message: dict[str, Any], kind: str) -> SetupParameters:
    """Return what a peer says in an offer or an answer. Raise SetupError for what cannot be."""
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
