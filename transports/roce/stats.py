"""What a queue pair counts. Everything only grows."""

from dataclasses import dataclass


@dataclass(slots=True)
class QpStats:
    """One queue pair, both halves. NAKs are counted where they are sent and where received."""

    packets: int = 0  # sent, all kinds, retransmissions included
    payload_bytes: int = 0  # in them
    retransmissions: int = 0  # packets sent again, replayed responses included
    timeouts: int = 0
    naks: int = 0  # PSN sequence errors
    implied_naks: int = 0
    rnr_naks: int = 0
    duplicates: int = 0  # requests seen again
    ghost_acks: int = 0  # of what was never sent
    old_acks: int = 0  # of what was acknowledged before
