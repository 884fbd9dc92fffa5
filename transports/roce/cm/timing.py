"""How long codes of five bits are, and when which of them runs. IBTA vol. 1, section 12.7."""

from transports.clock import MS, Ns
from wire.roce.cm.connection import Req

# From the specification: 4.096 us * 2^n.
# Deviation: one millisecond for 2^8 of them in place of 1.05, and never less, as kernels count,
# so that two ends of different make run out of patience at the same time.
_CODE_OF_A_MS = 8


def cm_time(code: int) -> Ns:
    """Return the time that a code of the communication manager stands for."""
    return max(MS, MS << code >> _CODE_OF_A_MS)


def packet_life(local_ack_timeout: int) -> int:
    """Return the code of the packet life time in a path's local ACK timeout: half of it."""
    return max(0, local_ack_timeout - 1)


def request_time(req: Req) -> Ns:
    """How long the sender of `req` waits for its answer: there and back, and the answer."""
    life = cm_time(packet_life(req.primary.local_ack_timeout))
    return 2 * life + cm_time(req.remote_cm_response_timeout)


def reply_time(req: Req) -> Ns:
    """How long the sender of the reply to `req` waits for the RTU."""
    return cm_time(req.local_cm_response_timeout)


def timewait_time(req: Req) -> Ns:
    """How long neither the numbers of a connection nor its queue pairs are used again.

    Section 12.9.8.4: twice the packet life time and what an acknowledgement takes.
    """
    return cm_time(req.primary.local_ack_timeout)


def ack_timeout_code(local_ack_timeout: int, target_ack_delay: int) -> int:
    """Return the local ACK timeout of a queue pair: that of the path and the target's delay.

    Both are logarithms, so the sum is the larger, or one more where the other is at least
    about its half. Section 12.7.34.
    """
    life = packet_life(local_ack_timeout)
    if life + 1 >= target_ack_delay:
        code = life + 1 + (target_ack_delay >= life)
    else:
        code = target_ack_delay + (life + 1 >= target_ack_delay - 1)
    return min(31, code)
