"""What may be set and shown of a tunnel while it runs: keys, peers, endpoints, allowed IPs."""

from collections.abc import Iterator

from transports.clock import Ns
from transports.overlay.allowed_ips import Prefix
from transports.overlay.cookies import CookieChecker
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import PrefixMoved
from transports.overlay.keys import KEY_SIZE, PrivateKey, Secret, to_base64
from transports.overlay.peer import Peer, PeerStatus
from transports.overlay.state import State
from transports.overlay.timers import Timer


class Settings:
    """The side of a tunnel that `wg` sees. Mistakes are the caller's: ValueError says which.

    A refused setting changes nothing.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._numbers = 0
        self._listen_port = 0
        self._fwmark = 0

    @property
    def public_key(self) -> bytes | None:
        private = self._state.private
        return private.public if private is not None else None

    @property
    def private_key(self) -> PrivateKey | None:
        return self._state.private

    def set_private_key(self, key: PrivateKey | None) -> None:
        """Take another key, or none. Sessions made with the old one only receive from now on.

        A peer with the public half of `key` would be ourselves, and is removed.
        """
        state = self._state
        if key == state.private:
            return
        state.private = key
        state.checker = None
        if key is not None:
            self.remove_peer(key.public)
            state.checker = CookieChecker(key.public, state.entropy, state.limits)
        for peer in state.peers.values():
            peer.static_static = key.dh(peer.public) if key is not None else None
            peer.slots.forbid_sending()
            state.drop_pending(peer)
            state.note_ready(peer)

    @property
    def listen_port(self) -> int:
        """The port that the owner of the socket is to bind; 0: any."""
        return self._listen_port

    def set_listen_port(self, port: int) -> None:
        if not 0 <= port <= 0xFFFF:
            raise ValueError(f"listen_port is {port}, legal is 0 to 65535")
        self._listen_port = port
        self._forget_local_addresses()

    @property
    def fwmark(self) -> int:
        """The mark that the owner of the socket is to set on it; 0: none."""
        return self._fwmark

    def set_fwmark(self, mark: int) -> None:
        if not 0 <= mark <= 0xFFFFFFFF:
            raise ValueError(f"fwmark is {mark:#x}, legal is 0 to 0xffffffff")
        self._fwmark = mark
        self._forget_local_addresses()

    def add_peer(self, public: bytes) -> bool:
        """Know a peer; one that is known stays as it is. Say no if it is us: not an error.

        Raise ValueError for what is no key, and for more than `max_peers`.
        """
        state = self._state
        if len(public) != KEY_SIZE:
            raise ValueError(f"a public key is {KEY_SIZE} bytes, not {len(public)}")
        if public == self.public_key:
            return False
        if public in state.peers:
            return True
        if len(state.peers) >= state.limits.max_peers:
            raise ValueError(f"an interface has at most {state.limits.max_peers} peers")
        static_static = state.private.dh(public) if state.private is not None else None
        self._numbers += 1
        timers = state.agenda, self._numbers
        state.peers[public] = Peer(public, static_static, state.limits, timers)
        return True

    def remove_peer(self, public: bytes) -> None:
        """Forget a peer and all that belongs to it, its greatest timestamp included."""
        state = self._state
        peer = state.peers.pop(public, None)
        if peer is None:
            return
        state.wipe(peer)
        state.allowed.remove_owner(peer)
        peer.staged.clear()
        peer.timers.stop_all()
        if peer.is_ready:
            state.ready.remove(peer)

    def set_preshared_key(self, public: bytes, key: Secret) -> None:
        """Mix in `key` from the next handshake on; 32 zeros are none."""
        self._peer(public).preshared_key = key

    def set_endpoint(self, public: bytes, endpoint: Endpoint) -> None:
        """Say where the peer may be; from where it speaks decides."""
        peer = self._peer(public)
        peer.endpoint = Endpoint.of(*endpoint)
        peer.local = None
        self._state.note_ready(peer)

    def set_persistent_keepalive(self, public: bytes, interval: Ns, now: Ns) -> None:
        """Send something at least once in `interval`, beginning now; 0: do not."""
        if interval < 0:
            raise ValueError(f"the interval is {interval} ns, legal is 0 or more")
        peer = self._peer(public)
        before, peer.persistent_keepalive = peer.persistent_keepalive, interval
        if not interval:
            peer.timers.stop(Timer.PERSISTENT)
        elif not before:
            peer.traversed(now)
            self._state.stage_keepalive(peer)

    def add_allowed_ip(self, public: bytes, prefix: Prefix) -> None:
        """Route `prefix` to the peer; whose it was loses it, which is an event."""
        state = self._state
        peer = self._peer(public)
        most = state.limits.max_allowed_ips
        if len(state.allowed) >= most and prefix not in state.allowed:
            raise ValueError(f"an interface has at most {most} allowed IPs")
        before = state.allowed.insert(prefix, peer)
        if before is not None:
            state.emit(PrefixMoved(prefix, before.public, public))

    def remove_allowed_ip(self, public: bytes, prefix: Prefix) -> bool:
        """Take exactly `prefix` from the peer; say whether it was the peer's."""
        return self._state.allowed.remove(prefix, self._peer(public))

    def clear_allowed_ips(self, public: bytes) -> None:
        self._state.allowed.remove_owner(self._peer(public))

    def __contains__(self, public: bytes) -> bool:
        return public in self._state.peers

    def peers(self) -> Iterator[PeerStatus]:
        """Show the peers, in the order in which they were added."""
        for peer in list(self._state.peers.values()):
            yield PeerStatus(
                peer.public, peer.preshared_key, peer.endpoint, peer.persistent_keepalive,
                peer.last_handshake, peer.rx_bytes, peer.tx_bytes,
                tuple(self._state.allowed.of(peer)),
            )  # fmt: skip

    def table_sizes(self) -> dict[str, int]:
        """Return how long everything is that a peer or a stranger could make grow."""
        state = self._state
        return {
            "pending": len(state.pending),
            "sessions": len(state.sessions),
            "outgoing": len(state.outgoing),
            "staged": sum(len(peer.staged) for peer in state.peers.values()),
            "events": len(state.events),
            "timers": len(state.agenda),
        }

    def _forget_local_addresses(self) -> None:
        """Let routing choose from where to send: it may choose otherwise now."""
        for peer in self._state.peers.values():
            peer.local = None

    def _peer(self, public: bytes) -> Peer:
        peer = self._state.peers.get(public)
        if peer is None:
            raise ValueError(f"no peer has the public key {to_base64(public)}")
        return peer
