"""A tunnel as a node's machine: what a control channel, a report and events.jsonl see of it."""

from collections.abc import Mapping, Sequence

from netem.host.events import Chronicle, HostEvent
from netem.topology.outcome import NodeReport
from netem.topology.plan import WorkPlan
from transports.clock import Ns
from transports.overlay.events import (
    EndpointMoved,
    Event,
    GaveUp,
    KeysWiped,
    PrefixMoved,
    Refused,
    SessionBegun,
)
from transports.overlay.keys import to_base64
from transports.overlay.refusals import Refusal
from transports.overlay.tunnel import Tunnel


class TunnelMachine:
    """One tunnel of one node."""

    def __init__(self, name: str, tunnel: Tunnel, peers: Mapping[bytes, str]) -> None:
        """`peers` are what people call the peers; one that is not in it goes by its key."""
        self.name = name
        self.tunnel = tunnel
        self.sessions = 0  # begun, in either role
        self.moves = 0  # of endpoints that were known
        self.gave_up = 0
        self._peers = dict(peers)
        self._chronicle = Chronicle()

    @property
    def deadline(self) -> Ns | None:
        return self.tunnel.deadline

    def expire(self, now: Ns) -> None:
        self.tunnel.expire(now)

    def events(self) -> Sequence[HostEvent]:
        """Return what was noted since the last call."""
        return self._chronicle.drain()

    def start(self, now: Ns) -> None:
        """Do nothing: a tunnel begins with its first packet, or its first keepalive."""

    def release(self, item: int, now: Ns) -> None:
        """Do nothing."""

    def hear(self, flow: str, role: str, says: str, now: Ns) -> None:
        """Take note of nothing: no flow ends here."""

    def post(self, flow: str, work: WorkPlan, now: Ns) -> bool:
        """Say no: a gateway has no end of a flow."""
        del flow, work, now
        return False

    def note(self, event: Event, now: Ns) -> None:
        """Count and tell what happened to a peer; packets and secrets are the driver's."""
        match event:
            case SessionBegun():
                self.sessions += 1
                self._tell(now, "session_begun", event.peer, role=event.role.value)
            case EndpointMoved(before=before):
                self.moves += before is not None
                was = "nowhere" if before is None else str(before)
                self._tell(
                    now, "endpoint_moved", event.peer, before=was, after=str(event.after)
                )
            case GaveUp():
                self.gave_up += 1
                told = {"initiations": event.initiations, "dropped": event.dropped}
                self._tell(now, "gave_up", event.peer, **told)
            case KeysWiped():
                self._tell(now, "keys_wiped", event.peer)
            case PrefixMoved():
                was = self._called(event.before)
                prefix = str(event.prefix)
                self._tell(now, "prefix_moved", event.after, before=was, prefix=prefix)
            case Refused():
                why, source = event.reason.value, str(event.source)
                self._chronicle.add(now, "refused", why=why, source=source)

    def report(self) -> NodeReport:
        """Return everything that was counted, by the names that README.md explains."""
        tunnel, stats = self.tunnel, self.tunnel.stats
        counters = {
            "sessions": self.sessions,
            "moves": self.moves,
            "gave_up": self.gave_up,
            "data_sent": stats.data_sent,
            "data_received": stats.data_received,
            "keepalives_sent": stats.keepalives_sent,
            "keepalives_received": stats.keepalives_received,
            "handshakes_sent": stats.handshakes_sent,
            "handshakes_received": stats.handshakes_received,
            "dropped_events": tunnel.dropped_events,
            **{f"refused_{reason.value}": tunnel.refused[reason] for reason in Refusal},
        }
        told = {f"overlay.{name}": count for name, count in counters.items() if count}
        return NodeReport(node=self.name, counters=told)

    def _tell(self, at: Ns, what: str, peer: bytes, **fields: int | str) -> None:
        self._chronicle.add(at, what, peer=self._called(peer), **fields)

    def _called(self, peer: bytes) -> str:
        return self._peers.get(peer) or to_base64(peer)
