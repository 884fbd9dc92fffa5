"""End-to-end flow control: who may start a message that takes a receive WQE.

IBTA vol. 1, section 9.7.7.2. The requester numbers its messages (SSN, from 1). An ACK with a
credit code below 0x1F lets it go up to the limit sequence number LSN = MSN + credits; one
message beyond is always allowed, and its ACK fetches new credits. Code 0x1F ends the control
for the life of the connection.
"""

from dataclasses import dataclass

from transports.roce.psn import unwrap
from wire.roce.eths import CREDITS, NO_CREDIT_LIMIT, credit_code


@dataclass(slots=True)
class SendCredits:
    """The requester's side. `limit` is the LSN, None where there is no control (yet).

    A connection whose ends agreed on credits starts with LSN 0. One that did not starts free,
    and honours what it receives: a peer that sends credit codes means them.
    """

    limit: int | None = None
    is_free_for_life: bool = False
    next_ssn: int = 1

    def may_start(self) -> bool:
        """Say whether the next message may start if it takes a receive WQE; else it may."""
        return self.limit is None or self.next_ssn <= self.limit + 1

    def start(self, takes_receive: bool) -> None:
        """Give the next message its number: it starts now."""
        self.next_ssn += 1
        if not takes_receive and self.limit is not None:
            self.limit += 1

    def receive(self, code: int, msn: int) -> None:
        """Take the credit code and the MSN of a positive acknowledgement."""
        if self.is_free_for_life:
            return
        if code == NO_CREDIT_LIMIT:
            self.limit = None
            self.is_free_for_life = True
            return
        limit = unwrap(msn, self.next_ssn) + CREDITS[code]
        if self.limit is None or limit > self.limit:
            self.limit = limit


def offered_code(receives: int, offers: bool) -> int:
    """Return the credit code for an ACK: `receives` WQEs are posted and not yet taken."""
    return credit_code(receives) if offers else NO_CREDIT_LIMIT
