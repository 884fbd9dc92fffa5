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

What does not fit is said in words, to the peer as `error`, to the owner as `failure`; so is
each reading of a disputed point that differs. What offers and answers say is in
`setup_message`.
"""

import json
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from transports.clock import Ns, S
from transports.mrc.profiles import LAYOUTS, MAX_PLANES
from transports.mrc.setup_message import (
    PROFILE,
    PROTOCOL_VERSION,
    READINGS,
    Region,
    SetupError,
    SetupParameters,
    message_of,
    parameters_of,
    read_object,
)
from transports.roce.exchange.dialogue import HOLD, Dialogue, Script, Step, Want
from wire.codec import DecodeError

__all__ = [
    "LENGTH",
    "MAX_MESSAGE",
    "PORT",
    "READINGS",
    "TIMEOUT",
    "PeerRefusedError",
    "Ready",
    "Region",
    "Settled",
    "Setup",
    "SetupError",
    "SetupParameters",
    "SetupRole",
]

PORT = 18515  # TCP, of the listening side
MAX_MESSAGE = 65536  # bytes of JSON
TIMEOUT: Ns = 5 * S  # by the wall's clock; the owner's to keep: the queue pair goes to ERROR
MAX_REASON = 1000  # characters of an error
LENGTH = 4  # bytes before each message


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
            self._send(message_of(self.ours, "offer"))
            theirs = yield from self._hear_parameters("answer")
        else:
            theirs = yield from self._hear_parameters("offer")
        mtu = min(self.ours.path_mtu, theirs.path_mtu)
        _check_match(self.ours, theirs)
        if self.role is SetupRole.LISTENING:
            self._send(message_of(replace(self.ours, path_mtu=mtu), "answer"))
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
        message = read_object(body)
        if message.get("type") == "error":
            raise PeerRefusedError(f"the peer refuses: {message.get('reason')}")
        if (profile := message.get("profile")) != PROFILE:
            raise SetupError(f"profile is {profile!r}, ours is {PROFILE!r}")
        if (kind := message.get("type")) != wanted:
            raise SetupError(f"type is {kind!r}, {wanted!r} was awaited")
        return message

    def _hear_parameters(self, wanted: str) -> Step[SetupParameters]:
        message = yield from self._hear(wanted)
        return parameters_of(message, wanted)


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
