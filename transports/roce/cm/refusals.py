"""Why a MAD was dropped without an answer: one counter per reason."""

from enum import Enum


class CmRefusal(Enum):
    """What was wrong with a MAD that changed nothing."""

    MALFORMED = "malformed"  # no MAD of the communication manager
    NOT_ASKED = "not_asked"  # an answer to no question of ours
    UNKNOWN_ID = "unknown_id"  # a connection that is none
    PEER = "peer"  # the right numbers from another address
    STATE = "state"  # nothing that this connection waits for
    DUPLICATE = "duplicate"  # seen before, nothing to say again
    QPN = "qpn"  # a DREQ for another queue pair
    FLOOD = "flood"  # too much waits to be sent


class RefusedError(Exception):
    """A MAD is to be dropped; caught where it came in."""

    def __init__(self, why: CmRefusal) -> None:
        super().__init__(why.value)
        self.why = why
