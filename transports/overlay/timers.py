"""The timers of peers, and which of them is due next. WireGuard paper, section 6."""

from enum import IntEnum
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from transports.clock import Ns
from transports.overlay.session import NEVER

if TYPE_CHECKING:
    from transports.overlay.peer import Peer


class Timer(IntEnum):
    """What a peer may be waiting for; fired in this order if due together."""

    RETRANSMIT = 0  # an initiation has not been answered for REKEY_TIMEOUT and jitter
    KEEPALIVE = 1  # data came and nothing was sent for KEEPALIVE_TIMEOUT
    NEW_HANDSHAKE = 2  # data was sent and nothing came for both of these and jitter
    WIPE = 3  # no new session for three times REJECT_AFTER_TIME
    PERSISTENT = 4  # nothing either way for the persistent keepalive interval


class Timers:
    """When each timer of one peer is due; NEVER if it is not running.

    `at` may be set later or to NEVER by hand; to set it earlier is the business of `start`.
    """

    __slots__ = ("_agenda", "_peer", "at", "entered", "number")

    def __init__(self, agenda: "Agenda", peer: "Peer", number: int) -> None:
        """Take the `number` that orders peers that are due at the same time."""
        self._agenda = agenda
        self._peer = peer
        self.at = [NEVER] * len(Timer)
        self.entered = NEVER  # earliest entry in the agenda
        self.number = number

    def start(self, timer: Timer, at: Ns) -> None:
        """Start `timer`, or start it anew."""
        self.at[timer] = at
        if at < self.entered:
            self.entered = at
            self._agenda.enter(at, self.number, self._peer)

    def stop(self, timer: Timer) -> None:
        self.at[timer] = NEVER

    def stop_all(self) -> None:
        self.at = [NEVER] * len(Timer)

    def is_running(self, timer: Timer) -> bool:
        return self.at[timer] != NEVER

    @property
    def first(self) -> Ns:
        return min(self.at)

    def take_due(self, now: Ns) -> list[Timer]:
        """Stop those that are due and return them."""
        due = [timer for timer in Timer if self.at[timer] <= now]
        for timer in due:
            self.at[timer] = NEVER
        return due


class Agenda:
    """The peers by the time of their first timer, which mostly moves later.

    A peer is entered at the earliest time at which it may be due; what it says when that entry
    comes up decides. So timers that every packet starts anew or stops cost nothing here.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Ns, int, Peer]] = []
        self._peers = 0  # entries that count; the others are older ones of the same peer

    def enter(self, at: Ns, number: int, peer: "Peer") -> None:
        heappush(self._heap, (at, number, peer))
        if len(self._heap) > 64 and len(self._heap) > 4 * self._peers:
            # Entries that no longer count would grow without bound.
            kept = {
                number: (at, number, peer)
                for at, number, peer in self._heap
                if at == peer.timers.entered
            }
            self._heap = list(kept.values())
            heapify(self._heap)
            self._peers = max(len(kept), 16)

    def first(self) -> tuple[Ns, "Peer"] | None:
        """Return when the first timer is due, and whose it is."""
        heap = self._heap
        while heap:
            at, number, peer = heap[0]
            timers = peer.timers
            due = timers.first
            if at != timers.entered:  # an earlier entry already spoke for it
                heappop(heap)
            elif due == at:
                return at, peer
            elif due == NEVER:
                heappop(heap)
                timers.entered = NEVER
            else:
                heapreplace(heap, (due, number, peer))
                timers.entered = due
        return None

    def __len__(self) -> int:
        return len(self._heap)
