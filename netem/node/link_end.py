"""One end of a link, as far as it is the same for frames and for datagrams: its impairments."""

from abc import ABC, abstractmethod
from collections import Counter

from netem.impair.egress import Egress
from netem.impair.model import Impairment
from netem.topology.outcome import DirectionReport, FaultReport
from transports.clock import Ns


class LinkEnd(ABC):
    """What is done to what this end sends and, where a kernel end faces us, to what comes."""

    def __init__(self, name: str, egress: Egress, *, ingress: Egress | None, peer: str) -> None:
        """`name` is that of whoever sends by it, "h0:p0"; in a wire that is not its owner."""
        self.name = name
        self.peer = peer
        self.egress = egress
        self.ingress = ingress
        self.bypasses = egress.is_transparent  # nothing would happen in the egress: go round it
        self.counters: Counter[str] = Counter()

    @property
    def deadline(self) -> Ns | None:
        """When something is due to leave an impairment, either way."""
        out = None if self.bypasses else self.egress.deadline
        if self.ingress is None or (into := self.ingress.deadline) is None:
            return out
        return into if out is None else min(out, into)

    def acts_for(self, name: str) -> Egress | None:
        """Return the direction that the port called `name` sends on, if it is ours to do."""
        if self.name == name:
            return self.egress
        return self.ingress if self.peer == name else None

    def change(self, name: str, impairment: Impairment, now: Ns) -> None:
        """Let another impairment hold for what the port called `name` sends."""
        egress = self.acts_for(name)
        if egress is None:
            raise ValueError(f"{self.name} does not act for {name}")
        egress.change(impairment, now)
        self.review()

    def review(self) -> None:
        """Find out again whether to go round the egress."""
        self.bypasses = self.egress.is_transparent

    @abstractmethod
    def socket_counters(self) -> dict[str, int]:
        """Return what the sockets counted: `receive_drops` for lack of buffer, and others."""

    def names(self) -> list[str]:
        """Return the directions that this end acts for, as "h0:p0->h1:p0"."""
        out = self.egress.direction
        return [out] if self.ingress is None else [out, self.ingress.direction]

    def directions(self) -> list[DirectionReport]:
        """Report on the one or two directions that this end acts for."""
        out = self.egress.report()
        return [out] if self.ingress is None else [out, self.ingress.report()]

    def faults(self) -> list[FaultReport]:
        """Report how often the faults of either direction fired."""
        found = self.egress.fault_reports()
        return found if self.ingress is None else found + self.ingress.fault_reports()
