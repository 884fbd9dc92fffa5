"""The middle of long messages, as long as nothing happens: nearly all that a sender does.

`Device.transmit` asks queue pairs in turn, each time anew what it has to send. Where only one
is waiting, and the next packets are new data in the middle of a message, all of that stays as
it is from packet to packet; so it is found out once, with how many the windows allow. What is
done for a packet is what `Requestor.next_middle` and `Departures.middle` do; a test holds them
together. Between any two packets everything is consistent, and the owner may do as it likes:
then, or where anything is unusual, this ends, and the usual way goes on.
"""

from collections.abc import Iterator, Sized
from typing import Protocol

from transports.clock import Ns
from transports.mrc.departures import Departures, Outgoing
from transports.mrc.flows import REST
from transports.mrc.qp import QueuePair
from transports.mrc.serials import MASK16
from transports.roce.psn import MASK
from wire.mrc.bth import TS, A
from wire.mrc.eths import FTYPE, TICK_NS
from wire.mrc.opcodes import MrcOpcode
from wire.roce.icrc import ICRC, crc32

_A_TS = A | TS
_MIDDLE = MrcOpcode.WRITE_MIDDLE


class Owner(Protocol):
    """Who sends: a device."""

    sent_packets: int
    calls: int  # of its owner, but for `transmit`: anything may be otherwise after one
    room: int | None


def stream(
    qp: QueuePair, owner: Owner, departures: Departures, waiting: Sized, now: Ns
) -> Iterator[Outgoing]:
    """Return the packets of `qp`, which is the only one that is `waiting`."""
    # bench: mrc. All that can be is looked up before the loop.
    requestor, calls, room = qp.requestor, owner.calls, owner.room
    allowed = 0 if requestor is None else requestor.middles_allowed
    if requestor is None or allowed < 2:
        return
    message = requestor.messages.begun
    if message is None or message.view is None or not departures.has_middles(qp):
        return
    generation = qp.generation
    board, paths, stats, view = requestor.board, requestor.paths, qp.stats, message.view
    arm, overtaking, heads, qp_num = requestor.arm, requestor.overtaking, qp.middles, qp.qp_num
    mtu, packet = requestor.config.mtu, requestor.packet
    size, cwnd = requestor.overhead + mtu, requestor.congestion.cwnd
    wr, length, msn = message.wr, message.length, message.msn & MASK16
    rqmsn = message.rqmsn & MASK16 if message.has_imm else 0
    va, r_key, stamp = wr.remote_addr, wr.r_key, now // TICK_NS & MASK16
    next_good, send, pack, seal = paths.next_good, board.send, REST.pack, ICRC.pack
    for index in range(message.started, message.started + allowed):
        if owner.calls != calls or qp.generation != generation or len(waiting) != 1:
            return
        ev = next_good(now, room)
        if ev is None:
            return
        head = heads.get(ev) or departures.middle_head(qp, ev)
        message.started = index + 1
        sent = send(message, index, size, ev, stamp, now)
        arm(sent)
        if overtaking is not None:
            overtaking.sent(sent)
        psn, start = sent.psn & MASK, index * mtu
        data, crc, plane = head
        payload = view[start : start + mtu]
        word = psn | _A_TS if cwnd - board.inflight < 2 * packet else psn | TS
        rest = pack(word, rqmsn, msn, stamp, FTYPE, va + start, r_key, length)
        made = b"".join((data, rest, payload, seal(crc32(payload, crc32(rest, crc)))))
        stats.packets += 1
        stats.payload_bytes += mtu
        owner.sent_packets += 1
        outgoing: Outgoing = tuple.__new__(
            Outgoing, (made, plane, qp_num, _MIDDLE, psn, ev, 1, "")
        )
        yield outgoing
