"""The overlay of the lab file as types: sites, what all tunnels do, and their timers."""

import re
from typing import Annotated, Literal

from msgspec import field

from netem.topology.overlay_plan import EcnRule
from netem.topology.reading import (
    TIME,
    TRUTH,
    Items,
    Keys,
    Name,
    Named,
    OneOf,
    Or,
    Scalar,
    Spec,
    Whole,
    Word,
)
from transports.clock import Ns
from transports.overlay.keys import from_base64

# Limits, ours: each gateway has a peer for each other site, and a route for each host of it.
MAX_SITES = 64
MAX_MOVES = 64

SITE_NAME = Name(
    re.compile(r"[a-z][a-z0-9-]{0,19}"),
    "a letter a to z, then up to 19 of a to z, 0 to 9 and -",
)


def _key(value: object) -> str:
    """Return a key in base64; what was written instead is not repeated."""
    if not isinstance(value, str):
        raise ValueError("a key is 44 characters of base64, as `wg genkey` prints it")  # noqa: TRY004 - a lab file has no types
    from_base64(value)
    return value


KEY = Scalar(_key)
GENERATED = "generated"


class MoveSpec(Spec, frozen=True, kw_only=True):
    """At a time, a gateway speaks from another port."""

    at: Annotated[Ns, TIME]
    port: Annotated[int, Whole(1, 65535, "a UDP port")]


class SiteSpec(Spec, frozen=True, kw_only=True):
    """A site: the gateway of all that is behind it."""

    gateway: Annotated[str, Word("t2-p0-0")]
    private_key: Annotated[str | None, Or(GENERATED, None, KEY)] = None  # None: from the seed
    listen_port: Annotated[int | None, Whole(1, 65535, "a UDP port")] = None
    keepalive: Annotated[Ns | None, Or("off", 0, TIME)] = None
    endpoint: Annotated[Literal["known", "unknown"], OneOf(("known", "unknown"))] = "known"
    moves: Annotated[tuple[MoveSpec, ...], Items(Keys(MoveSpec), MAX_MOVES)] = ()
    location: str = ""


class TimersSpec(Spec, frozen=True, kw_only=True):
    """Timers and limits of the paper, section 6.1, by its names."""

    rekey_after_time: Annotated[Ns | None, TIME] = None
    reject_after_time: Annotated[Ns | None, TIME] = None
    rekey_attempt_time: Annotated[Ns | None, TIME] = None
    rekey_timeout: Annotated[Ns | None, TIME] = None
    keepalive_timeout: Annotated[Ns | None, TIME] = None
    rekey_after_messages: Annotated[int | None, Whole(1, 1 << 60)] = None
    load_threshold: Annotated[int | None, Whole(1, 1024, "handshakes that wait")] = None


class OverlaySpec(Spec, frozen=True, kw_only=True):
    """Tunnels between the gateways of sites, each with each."""

    sites: Annotated[dict[str, SiteSpec], Named(SITE_NAME, Keys(SiteSpec), MAX_SITES)] = field(
        default_factory=dict
    )
    family: Annotated[Literal["ipv6", "ipv4"], OneOf(("ipv6", "ipv4"))] = "ipv6"
    listen_port: Annotated[int, Whole(1, 65535, "a UDP port")] = 51820
    mtu: Annotated[int | None, Or("auto", None, Whole(576, 65535, "inner packet bytes"))] = None
    keepalive: Annotated[Ns, Or("off", 0, TIME)] = 0
    preshared_key: Annotated[str, Or("none", "", Or(GENERATED, GENERATED, KEY))] = ""
    ecn: Annotated[EcnRule, OneOf(("kernel", "rfc6040", "off"))] = "kernel"
    dscp: Annotated[Literal["zero", "copy"], OneOf(("zero", "copy"))] = "zero"
    df: Annotated[Literal["set", "clear"], OneOf(("set", "clear"))] = "set"
    timers: Annotated[TimersSpec, Keys(TimersSpec)] = TimersSpec()
    secrets: Annotated[bool, TRUTH] = False
    location: str = ""
