"""The plan of a tunnel: what a gateway needs to know, with nothing left to decide."""

from typing import Literal

from msgspec import field

from netem.topology.switch_plan import Frozen
from transports.clock import Ns
from transports.overlay import limits
from transports.overlay.limits import Limits

EcnRule = Literal["kernel", "rfc6040", "off"]


class TunnelLimits(Frozen, frozen=True):
    """Times of WireGuard that a lab may shorten; the names of `transports.overlay.limits`."""

    rekey_after_time: Ns = limits.REKEY_AFTER_TIME
    reject_after_time: Ns = limits.REJECT_AFTER_TIME
    rekey_attempt_time: Ns = limits.REKEY_ATTEMPT_TIME
    rekey_timeout: Ns = limits.REKEY_TIMEOUT
    keepalive_timeout: Ns = limits.KEEPALIVE_TIMEOUT
    rekey_after_messages: int = limits.REKEY_AFTER_MESSAGES
    load_threshold: int = limits.LOAD_THRESHOLD

    def made(self) -> Limits:
        """Return them with all others; ValueError where no session could live with them."""
        return Limits(
            rekey_after_time=self.rekey_after_time,
            reject_after_time=self.reject_after_time,
            rekey_attempt_time=self.rekey_attempt_time,
            rekey_timeout=self.rekey_timeout,
            keepalive_timeout=self.keepalive_timeout,
            rekey_after_messages=self.rekey_after_messages,
            load_threshold=self.load_threshold,
        )


class TunnelPeerPlan(Frozen, frozen=True):
    """One peer of a tunnel. Keys are in base64, as `wg` has them; "" is none."""

    name: str  # its site
    public_key: str
    allowed_ips: tuple[str, ...]
    endpoint: str = ""  # "[fd00:ffff::1]:51820"; "": it has to speak first
    keepalive: Ns = 0
    preshared_key: str = ""

    def __repr__(self) -> str:
        """Hide the key."""
        return f"TunnelPeerPlan({self.name}, {self.endpoint}, {self.allowed_ips})"


class MovePlan(Frozen, frozen=True):
    """At a time the gateway has another port, as behind a NAT that has forgotten it."""

    at: Ns
    port: int


class TunnelPlan(Frozen, frozen=True):
    """The tunnel of one gateway."""

    interface: str  # "wg0"
    site: str
    private_key: str
    listen_port: int
    mtu: int  # of the interface
    why_mtu: str = ""  # where that comes from, for people
    addresses: tuple[str, ...] = ()  # of the interface
    peers: tuple[TunnelPeerPlan, ...] = ()
    ecn: EcnRule = "kernel"
    copy_dscp: bool = False
    fragments: bool = False  # DF is clear
    limits: TunnelLimits = field(default_factory=TunnelLimits)
    secrets: bool = False  # the capture gets what Wireshark needs to decrypt
    moves: tuple[MovePlan, ...] = ()

    def __repr__(self) -> str:
        """Hide the keys."""
        return f"TunnelPlan({self.site}, {self.interface}, mtu {self.mtu}, {self.peers})"
