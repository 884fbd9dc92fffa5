"""Single faults for our own machine: a line of one function, and what to put in its place.

A fault is planted by compiling the function anew with the line changed, in the module that it
is from, and putting it where the old one was. Nothing in the product knows of it.
"""

import inspect
import textwrap
from contextlib import contextmanager
from typing import NamedTuple

from netem.conform import sim
from netem.switch.marking import Marker
from transports.mrc.rendering import Renderer
from transports.mrc.requestor import Requestor as MrcRequestor
from transports.mrc.responder import Responder as MrcResponder
from transports.mrc.sack import SackGenerator
from transports.mrc.window import SendWindow
from transports.overlay.handshakes import Handshakes
from transports.overlay.session import Slots
from transports.overlay.tunnel import Tunnel
from transports.roce.cm.arrivals import Arrivals
from transports.roce.congestion.notification import NotificationPoint
from transports.roce.congestion.reaction import ReactionPoint
from transports.roce.credits import SendCredits
from transports.roce.device import Device
from transports.roce.memory import MemoryTable
from transports.roce.messages import Message
from transports.roce.port import Port, _row
from transports.roce.qp import QueuePair
from transports.roce.requester import Requester
from transports.roce.responder import Responder
from transports.roce.responses import Responses
from transports.roce.retries import Retries
from transports.roce.saved import Saved, SavedRing
from transports.roce.templates import Ipv6Template, mask_v4
from transports.roce.uc import UcReceiver, UcSender
from transports.roce.ud import UdReceiver
from transports.srv6 import endpoint
from transports.srv6.sids import Sid


class Fault(NamedTuple):
    """One fault: what people would call it, the case that must fail, and where it is."""

    name: str
    case: str
    function: object
    old: str
    new: str


class _Swap(NamedTuple):
    owner: object
    name: str
    old: object
    new: object


FAULTS = [
    # packets
    Fault("ICRC over the wrong bytes", "roce/W1.v6", Ipv6Template.head,
          "crc32(mask_v6(head), LRH_CRC)", "crc32(head, LRH_CRC)"),
    Fault("ICRC not checked", "roce/W2.bit-31", Device._receive_packet,
          "return RefusalReason.ICRC", "return self._deliver(admitted, arrival, now)"),
    Fault("TTL counted into the ICRC", "roce/W3.v4", mask_v4, "masked[8] = 0xFF", "pass"),
    Fault("transport version ignored", "roce/W15.1", _row, "arrival.bits & 0x0F", "False"),
    Fault("destination address ignored", "roce/W25", Port._admit,
          "destination != ah.local_ip or destination not in self.gids", "False"),
    Fault("source address ignored", "roce/W24", Port._admit, "source != ah.remote_ip", "False"),
    Fault("P_Key ignored", "roce/W19.0x1234", Port._admit,
          "return RefusalReason.P_KEY", "pass"),
    Fault("a tag is taken for the packet", "roce/W27.0x6000", sim._packet,
          "VLAN.size * tagged", "0"),
    # responder
    Fault("wrong MSN after a duplicate", "roce/R20.count", Responder._duplicate,
          "self._stats.duplicates += 1", "self.msn += 1"),
    Fault("duplicate executed again", "roce/R20", Responder._duplicate,
          "self._stats.duplicates += 1",
          "request.opcode == 10 and self._EXECUTE[10](self, request)"),
    Fault("ACK of a duplicate has its own PSN", "roce/R20", Responder._duplicate,
          "psn_add(self.expected_psn, -1)", "request.psn"),
    Fault("NAK twice per gap", "roce/R17", Responder._ahead, "self._is_refusing:", "False:"),
    Fault("NAK has the PSN that came", "roce/R16", Responder._ahead,
          "Answer(self.expected_psn,", "Answer(self.expected_psn + 1,"),
    Fault("a new gap gets no NAK", "roce/R18", Responder._executed,
          "self._is_refusing = False", "pass"),
    Fault("MSN counts the FIRST", "roce/R5", Responder._write,
          "self._message = Inbound(", "self._count_message(); self._message = Inbound("),
    Fault("ACK without being asked", "roce/R2", Responder._executed,
          "word >= ACK_REQ", "True"),
    Fault("talks after an RNR NAK", "roce/R14", Responder._not_ready,
          "self._is_refusing = True", "pass"),
    Fault("RNR timer is always 0", "roce/R13.timer-12", Responder._not_ready,
          "self.min_rnr_timer", "0"),
    Fault("MSN of a READ counts at its end", "roce/R22", Responder._read,
          "self._count_message()", "pass"),
    Fault("READ takes one PSN", "roce/R26", Responder._read,
          "self._executed(request.psn, span)", "self._executed(request.psn, 1)"),
    Fault("zero-length WRITE checks its key", "roce/R6", Responder._write,
          "if length:", "if True:"),
    Fault("QP rights ignored", "roce/R40.write", Responder._write,
          "not self.access & _REMOTE_WRITE", "False"),
    Fault("region rights ignored", "roce/R41.right", MemoryTable.remote,
          "grant.access & right", "True"),
    Fault("protection domain ignored", "roce/R41.foreign", MemoryTable.remote,
          "grant.pd != pd", "False"),
    Fault("RETH length not compared", "roce/R49.9", Responder._write,
          "size == length <= self._mtu", "size <= self._mtu"),
    Fault("SEND FIRST of any size", "roce/R46.first-4", Responder._send,
          "size != self._mtu", "False"),
    Fault("empty LAST taken", "roce/R48.write", Responder._continue,
          "0 < size", "0 <= size"),
    Fault("two gigabytes and more", "roce/R50.0xffffffff", Responder._write,
          "length > MAX_MESSAGE", "False"),
    Fault("SEND too long is an operational error", "roce/R51", Responder._fail_receive,
          "status is WcStatus.LOC_LEN_ERR", "False"),
    Fault("atomic alignment ignored", "roce/R35", Responder._atomic, "va % 8", "False"),
    Fault("compare-and-swap always swaps", "roce/R33", Responder._atomic,
          "original == compare", "True"),
    Fault("fetch-and-add saturates", "roce/R32", Responder._atomic,
          "(original + swap_add) & _U64", "min(original + swap_add, _U64)"),
    Fault("duplicate READ with any key", "roce/R30.key", Saved.is_asked_again,
          "r_key == self.r_key", "True"),
    Fault("more READs than agreed", "roce/R57", SavedRing.has_room.fget,
          "return len(ring) > 0 and", "return True or"),
    Fault("invalidate forgotten", "roce/R53", Responder._complete,
          "self._memory.invalidate(r_key)", "pass"),
    Fault("ACK overtakes a READ response", "roce/R60", Responses.acknowledge,
          "queue.append(Answer", "queue.appendleft(Answer"),
    Fault("FIRST inside a message taken", "roce/R38.first", Responder._write,
          "self._message is not None", "False"),
    Fault("alive after an error NAK", "roce/R44", QueuePair._enter_error,
          "self.takes_requests = self.takes_responses = False", "pass"),
    Fault("the MSN wraps to 1", "roce/R63", Responder._complete,
          "(self.msn + 1) & MASK", "(self.msn + 1) % MASK"),
    Fault("communication established not told", "roce/R62", QueuePair.receive,
          "not self._comm_established", "False"),
    # requester
    Fault("RETH has the length of its packet", "roce/Q3", Message._reth,
          "self.length", "min(self.length, self.mtu)"),
    Fault("last packet does not ask", "roce/Q4.write", Message.burst,
          "self.data.read(offset, self.length - offset), mtu, True",
          "self.data.read(offset, self.length - offset), mtu, False"),
    Fault("an ACK inside completes the message", "roce/Q8", Requester._acknowledge,
          "if message.stop > stop:", "if False:"),
    Fault("timeout four times too early", "roce/Q10", Requester._arm,
          "now + timeout", "now + timeout // 4"),
    Fault("one retry too many", "roce/Q11", Retries.progress,
          "self.retries_left = self.retry_cnt", "self.retries_left = self.retry_cnt + 1"),
    Fault("progress does not restore the retries", "roce/Q12", Requester._progress,
          "self._retries.progress(now)", "pass"),
    Fault("RNR time halved", "roce/Q17", Requester._receive_nak,
          "RNR_TIMER_NS[code]", "RNR_TIMER_NS[code] // 2"),
    Fault("NAK 0x62 taken for 0x63", "roce/Q21", Requester._receive_nak,
          "_FATAL.get(code, WcStatus.REM_OP_ERR)", "WcStatus.REM_OP_ERR"),
    Fault("ghost ACK taken", "roce/Q30", Requester.receive_ack,
          "return self._ghost()", "acked = self._top - 1"),
    Fault("READ asked again from its start", "roce/Q26", Message._request,
          "done = (psn - self.start) * self.mtu", "done = 0"),
    Fault("no implied NAK", "roce/Q28", Requester._implied_nak,
          "self._go_back(Cause.IMPLIED_NAK, now)", "pass"),
    Fault("one READ too many open", "roce/Q33", Requester._start,
          "<= self._open_responses", "< self._open_responses"),
    Fault("fence ignored", "roce/Q34", Requester._start, "wr.fence", "False"),
    Fault("half of the number space open", "roce/Q35", Requester.__init__,
          "min(config.window, MAX_OPEN)", "config.window + 1"),
    Fault("one credit too many", "roce/Q36", SendCredits.may_start,
          "self.limit + 1", "self.limit + 2"),
    Fault("unsignaled completes", "roce/Q42", Requester._retire, "wr.signaled", "True"),
    # other services, congestion
    Fault("UC packets ask", "roce/U1.sender", UcSender.next_burst,
          "ack_req=False", "ack_req=True"),
    Fault("UC goes on behind a hole", "roce/U2", UcReceiver.receive,
          "request.psn != self.expected_psn", "False"),
    Fault("Q_Key ignored", "roce/U6", UdReceiver.receive, "q_key !=", "None is"),
    Fault("two CNPs per interval", "roce/N1.once", NotificationPoint.receive_marked,
          "now >= self._quiet_until", "True"),
    Fault("a CNP costs nothing", "roce/N4", ReactionPoint._cut,
          "self.rate = self._bounded(max(cut, floor))", "pass"),
    Fault("alpha is forgotten at a CNP", "roce/N4.twice", ReactionPoint.receive_cnp,
          "self._keep * self._alpha + 1 - self._keep", "1 - self._keep"),
    Fault("the target is the rate of the line", "roce/N4.target", ReactionPoint._cut,
          "self.target = self.rate", "pass"),
    Fault("alpha does not decay", "roce/N5", ReactionPoint._age,
          "self._steps(now)", "0"),
    Fault("back at the target in one step", "roce/N6", ReactionPoint._increase,
          "(self.target + self.rate + 1) // 2", "self.target"),
    Fault("the target never rises", "roce/N7", ReactionPoint._increase,
          "else config.rpg_ai_rate\n", "else 0\n"),
    Fault("no hyper increase", "roce/N7.hyper", ReactionPoint._increase,
          "hyper * config.rpg_hai_rate", "config.rpg_ai_rate"),
    Fault("marks below Kmin", "roce/N8", Marker.__init__,
          "self.kmin = plan.kmin", "self.kmin = -10**12"),
    Fault("marks all above Kmin", "roce/N8.line-ipv6", Marker._strikes,
          "self._most * (queued - self.kmin) // (self._kmax - self.kmin)", "self._most"),
    Fault("marks nothing up to Kmax", "roce/N8.line-ipv4", Marker._strikes,
          "self._most * (queued - self.kmin) // (self._kmax - self.kmin)", "0"),
    Fault("Pmax is always 1", "roce/N8.most", Marker.__init__,
          "threshold(plan.pmax)", "threshold(1.0)"),
    Fault("marks what is not ECN-capable", "roce/N8.not-ect", Marker.judge,
          "field is Ecn.NOT_ECT", "False"),
    Fault("SQD starts new messages", "roce/S7", Requester._start,
          "self.is_draining", "False"),
    # communication manager
    Fault("DREP with IDs not crossed", "cm/C17", Arrivals._receive_dreq,
          "Drep(dreq.remote_comm_id, dreq.local_comm_id)",
          "Drep(dreq.local_comm_id, dreq.remote_comm_id)"),
    Fault("DREQ for any queue pair", "cm/C18", Arrivals._receive_dreq,
          "dreq.remote_qpn != connection.local_qpn", "False"),
    Fault("a second DREQ is ignored", "cm/C16", Arrivals._receive_dreq,
          "connection.next_state(_T.DREQ)",
          "None if connection.state is _S.TIMEWAIT else connection.next_state(_T.DREQ)"),
    Fault("REJ names the message as REP", "cm/C2", Arrivals._refuse_req,
          "MessageRejected.REQ", "MessageRejected.REP"),
    Fault("REJ without the right GID", "cm/C5", Arrivals._refuse_req,
          "len(cannot.info)", "0"),
    Fault("an MRA is ignored", "cm/C20", Arrivals._receive_mra,
          "self._registry.deadlines.set(connection, now + wait)", "pass"),
    Fault("stale connection not seen", "cm/C22", Arrivals._check_req,
          "stale is not None", "False"),
    Fault("a REQ that comes again is a new one", "cm/C21", Arrivals._receive_req,
          "known is not None", "False"),
    Fault("RTU once only", "cm/C11", Arrivals._receive_rep_again,
          "self._outbox.send(connection.envelope, connection.rtu, connection.rtus)", "pass"),
    Fault("a REP may raise the depths", "cm/C13.raised", Arrivals._check_rep,
          "check_reply(rep, connection.req)", "pass"),
    # MRC
    Fault("SACK base off by one", "mrc/P7", SackGenerator._base,
          "lowest = bitmap.cack + 1", "lowest = bitmap.cack + 2"),
    Fault("SACK reflects no timestamp", "mrc/P4.ask", SackGenerator._sack,
          "stamp = trigger.stamp", "stamp = 0"),
    Fault("SACK offset from the base", "mrc/P7", SackGenerator._sack,
          "trigger.psn - bitmap.cack", "trigger.psn - base"),
    Fault("MRC duplicate without its ACK", "mrc/P2", MrcResponder._receive_again,
          "self.ack_is_due = self.messages.completed > 0", "pass"),
    Fault("MRC window one too large", "mrc/P3", MrcResponder.receive_write,
          "MPR_UNIT * self.config.mpr", "MPR_UNIT * self.config.mpr + 1"),
    Fault("last hop not told", "mrc/P11.last", MrcResponder.receive_cut,
          "NackReason.TRIMMED_LASTHOP if cut.last_hop else", ""),
    Fault("received bytes count duplicates", "mrc/P18", MrcResponder._receive_again,
          "self._counts[Oddity.DUPLICATE] += 1", "self.sack.rcvd_bytes += 1112"),
    Fault("EV reused on retransmission", "mrc/Q2", MrcRequestor._again,
          "ev = self.paths.next_ev(now, (last_ev,), room, avoid)", "ev = last_ev"),
    Fault("rtx not set", "mrc/Q2", Renderer.write, "out.transmission > 1", "False"),
    Fault("MPR ignored", "mrc/Q1", SendWindow.allows_psn, "MPR_UNIT * self.mpr", "512"),
    # WireGuard
    Fault("nonce reuse", "wg/D1", Tunnel._seal_staged,
          "session.counter = counter + 1", "pass"),
    Fault("replays accepted", "wg/D3", Tunnel._receive_data,
          "not session.replay.accept(counter)", "False"),
    Fault("an equal timestamp accepted", "wg/M7", Handshakes._opened,
          "timestamp <= peer", "timestamp < peer"),
    Fault("new keys before they are confirmed", "wg/D9", Slots.responded,
          "self.next = new", "self.current = new"),
    Fault("no padding", "wg/D2.pad", Tunnel._seal_staged,
          "inner.padding(len(packet), mtu)", "0"),
    Fault("endpoint moves before a message is opened", "wg/D5", Tunnel._receive_data,
          "session, peer = found", "session, peer = found; state.move(peer, source, local)"),
    Fault("any inner source", "wg/D6", Tunnel._deliver,
          "state.allowed.lookup(inner.source_of(packet)) is not peer", "False"),
    Fault("padding delivered", "wg/D7", Tunnel._deliver, "length != len(packet)", "False"),
    # segment routing
    Fault("hop limit not decremented", "srv6/S1", endpoint._advanced,
          "out[HOP_LIMIT_OFFSET] -= 1", "pass"),
    Fault("the segment after the next", "srv6/S1", endpoint._advanced,
          "SEGMENT_SIZE * left", "SEGMENT_SIZE * (left - 1)"),
    Fault("a hop limit of 1 is enough", "srv6/S2.1", endpoint._advanced,
          "packet[HOP_LIMIT_OFFSET] <= 1", "packet[HOP_LIMIT_OFFSET] < 1"),
    Fault("last entry not looked at", "srv6/S3.last-3", endpoint._advanced,
          "last > units // 2 - 1", "False"),
    Fault("no reduced lists", "srv6/S8", endpoint._advanced,
          "left > last + 1", "left > last"),
    Fault("decapsulates before the end", "srv6/B7.end.dt6", endpoint._ultimate,
          "srh is not None and srh.segments_left", "False"),
    Fault("PSP at every segment", "srv6/B8.not", endpoint._advanced,
          "left == 0 and Flavour.PSP", "Flavour.PSP"),
    Fault("PSP leaves the length", "srv6/B8", endpoint._remove,
          "packet[4:6] = length", "length = length"),
    Fault("USP does nothing", "srv6/B9", endpoint._upper_layer,
          "Flavour.USP in sid.flavours", "False"),
    Fault("everybody pops a used SRH", "srv6/B9.without", endpoint._upper_layer,
          "and Flavour.USP in sid.flavours", ""),
    Fault("USP at every segment", "srv6/B9.not", endpoint._advanced,
          "left == 0 and Flavour.PSP in sid.flavours", "Flavour.USP in sid.flavours"),
    Fault("any upper layer is taken", "srv6/B9.refused-udp", endpoint._upper_layer,
          "chain.next_header not in sid.upper_layers", "False"),
    Fault("CSIDs are always of 16 bits", "srv6/C6.8-40", Sid.shifted,
          "shift(destination, self.structure)", "shift(destination)"),
    Fault("hop limit stays at a CSID", "srv6/C1.bare", endpoint._passed,
          "out[HOP_LIMIT_OFFSET] -= 1", "pass"),
]  # fmt: skip


@contextmanager
def planted(fault):
    """Have one fault in the machine for as long as the block lasts."""
    swaps = list(_swaps(fault.function, _changed(fault)))
    assert swaps, f"{fault.name}: nobody has that function"
    for swap in swaps:
        _put(swap.owner, swap.name, swap.new)
    try:
        yield
    finally:
        for swap in swaps:
            _put(swap.owner, swap.name, swap.old)


def _changed(fault):
    """Return the function with the fault, in the names of its module."""
    function = fault.function
    source = textwrap.dedent(inspect.getsource(function))
    assert fault.old in source, f"{fault.name}: {fault.old!r} is not in {function.__qualname__}"
    scope = {}
    changed = source.replace(fault.old, fault.new, 1)
    exec(compile(changed, f"<{fault.name}>", "exec"), function.__globals__, scope)
    return scope[function.__name__]


def _swaps(function, changed):
    """Yield every place that holds the function: its class or module, and tables of it."""
    module = inspect.getmodule(function)
    holder = module
    for part in function.__qualname__.split(".")[:-1]:
        holder = getattr(holder, part)
    for name, value in vars(holder).items():
        if value is function:
            yield _Swap(holder, name, value, changed)
        elif isinstance(value, property):
            if value is changed or value.fget is function:
                yield _Swap(holder, name, value, changed)
        elif isinstance(value, dict) and function in value.values():
            for key, entry in value.items():
                if entry is function:
                    yield _Swap(value, key, entry, changed)


def _put(owner, name, value):
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
