"""What a host tells about a run while it runs: the rows of events.jsonl."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from transports.clock import Ns

Fields: TypeAlias = dict[str, int | str]

ITEM_DONE = "item_done"
SETUP = "setup"
ITEM_STARTED = "item_started"
COMPLETION = "completion"
RECEIVED = "received"
RETRANSMISSION = "retransmission"
CORRUPT_MESSAGE = "corrupt_message"


TO_BE_CARRIED = frozenset({ITEM_DONE, SETUP})  # others wait for these


class HostEvent(NamedTuple):
    """One thing that happened at emulated time `at`.

    event            fields
    item_started     flow item qp           the first message of an item was posted
    item_done        flow item qp status    its last message completed, whatever the status
    completion       flow item qp wr status [why]   of a send request, see `Chronicle`
    received         flow qp wr status [why]        of a receive request, see `Chronicle`
    corrupt_message  flow qp wr why         memory is not what the sender must have sent
    retransmission   qp psn why             the requester went back to `psn`
    comm_established, qp_fatal, sq_drained  qp [why]
    connected, not_connected  qp [why]; by the communication manager, or MRC's set-up
    setup            flow role says         a message to the flow's other end, to be carried
    unresolved       why                    nobody answered for an address
    """

    at: Ns
    event: str
    fields: Fields


class Chronicle:
    """Collects events in order. Of many successful messages it keeps the first ones.

    A flow of a million messages would fill events.jsonl with what run.json says in one number:
    after the first `VERBOSE` successful completions of a flow only failures are told.
    """

    VERBOSE = 64
    # Limit: 65,536 events between two calls of `drain`; more is a driver that does not drain.
    MOST = 65_536

    def __init__(self) -> None:
        self.forgotten = 0
        self._events: list[HostEvent] = []

    def add(self, at: Ns, event: str, **fields: int | str) -> None:
        """Append one event."""
        if len(self._events) < self.MOST or event in TO_BE_CARRIED:
            self._events.append(HostEvent(at, event, fields))
        else:
            self.forgotten += 1

    def drain(self) -> Sequence[HostEvent]:
        """Return what was added since the last call, in order."""
        if not self._events:
            return ()
        events, self._events = self._events, []
        return events
