"""Single faults for our switch, planted as those of `faults.py` are: trimming and PFC."""

from netem.impair.trim import _correct, _shorten
from netem.switch.admission import Admission
from netem.switch.assembly import _port
from netem.switch.buffer import IngressAccount
from netem.switch.egress_queue import EgressQueue
from netem.switch.lines import Lines
from netem.switch.nic import Nic, _queue
from netem.switch.pause import Pauses, PauseSender
from netem.switch.pipeline import Switch
from netem.switch.trimming import Trimmer
from tests.netem.conform.faults import Fault
from wire.pfc import Pfc

_TRIMMED = "trim(frame, cut, self._new_dscp(code), self._plan)"
_ALL_LENGTHS = "__import__('msgspec').structs.replace(self._plan, inner_lengths=True)"


def _with(change):
    """Return a line that hands out a trimmed packet with one thing changed."""
    return f"(lambda out: ({change}, bytes(out))[1])(bytearray({_TRIMMED}))"


SWITCH_FAULTS = [
    # trimming
    Fault("drops where it is to trim", "trim/T1", EgressQueue.__init__,
          'plan.action == "trim"', "False"),
    Fault("trimmed packets stay in their queue", "trim/T1.sonic-2-udp-4", Admission._trim,
          "target = out.queues[trimmer.queue]", "target = queue"),
    Fault("the trim size counts from the IP header", "trim/T1.sonic-2-jumbo", Trimmer.trim,
          _TRIMMED, "trim(frame, cut + 14, self._new_dscp(code), self._plan)"),
    Fault("a share of the memory is never full", "trim/T1.sonic-4", Admission._room,
          "if account.admit(cells):",
          "if account.admit(cells) or account.limit is None:"),
    Fault("never before the queue is full", "trim/T1.threshold", Admission._room,
          "queue.trim_at is not None", "False"),
    Fault("DSCP not rewritten", "trim/T2.4-0", Trimmer.trim, "self._new_dscp(code)", "code"),
    Fault("ECN bits cleared", "trim/T2.6-2", Trimmer.trim,
          _TRIMMED, _with("out.__setitem__(15, out[15] & 0xCF)")),
    Fault("a trimmed packet loses its mark", "trim/T2.marked", Admission._judge,
          "frame, meta = queue.marked_ce(frame, held[4])", "meta = held[4]"),
    Fault("one trim DSCP for all", "trim/T2.map", Trimmer._new_dscp,
          "plan.dscp_map.get(code, plan.dscp)", "plan.dscp"),
    Fault("last hop not told by its DSCP", "trim/T3", Trimmer._new_dscp,
          "self._faces_host", "False"),
    Fault("every port is a last hop", "trim/T3.sonic-3", Trimmer._new_dscp,
          "self._faces_host", "True"),
    Fault("trims in every class", "trim/T4", EgressQueue.__init__,
          'plan.action == "trim"', "True"),
    Fault("exclusion ignored", "trim/T4.sonic-7", Trimmer.is_trimmable,
          "code not in self._trimmable", "False"),
    Fault("short packets dropped", "trim/T5.255", Trimmer.trim,
          'self._plan.short == "drop"', "True"),
    Fault("short packets padded", "trim/T5.sonic-3-6", Trimmer.trim,
          _TRIMMED, f"{_TRIMMED}.ljust(cut, bytes(1))"),
    Fault("refused trimmed packets not counted", "trim/T6", Admission._trim,
          "queue.trim_drops += 1", "pass"),
    Fault("the trim queue has no end", "trim/T6", Admission._trim,
          "if target.account.admit(cells):", "if target.account.admit(cells) or True:"),
    Fault("trims twice", "trim/T7", Trimmer.is_trimmable, "code in self._trimmed", "False"),
    Fault("the DSCP of the last hop is one as others", "trim/T7.last-hop", Trimmer.__init__,
          "plan.dscp_host is None", "True"),
    Fault("counted for the trim queue", "trim/T8", Admission._trim,
          "queue.trimmed += 1", "out.queues[trimmer.queue].trimmed += 1"),
    Fault("what is trimmed is no drop", "trim/T8", Admission._trim,
          "queue.drops += 1", "pass"),
    Fault("inner DSCP rewritten", "trim/T9.6", Trimmer.trim,
          _TRIMMED, _with("out.__setitem__(54, 0x6C)")),
    Fault("lengths in the tunnel corrected", "trim/T9.lengths", Trimmer.trim,
          _TRIMMED, _TRIMMED.replace("self._plan", _ALL_LENGTHS)),
    Fault("hop limit as it came", "trim/T10.6", Trimmer.trim,
          _TRIMMED, _with("out.__setitem__(21, out[21] + 1)")),
    Fault("outer length left", "trim/T11", _shorten, "min(length, left)", "length"),
    Fault("IPv4 checksum left", "trim/T11.v4", _correct,
          "checksum = update(checksum, old, new)", "pass"),
    Fault("UDP length corrected", "trim/T12.6", Trimmer.trim,
          _TRIMMED, _TRIMMED.replace("self._plan", _ALL_LENGTHS)),
    Fault("UDP checksum zeroed", "trim/T12.4", Trimmer.trim,
          _TRIMMED, _with("out.__setitem__(slice(40, 42), bytes(2))")),
    # trimming, changed while it runs
    Fault("the size stays that of the beginning", "trim/T1.sonic-1", Switch.set_trimming,
          "port.trimmer = trimmer", "port.trimmer._plan = "
          "__import__('msgspec').structs.replace(trimmer._plan, size=port.trimmer._plan.size)"),
    Fault("the trim queue stays that of the beginning", "trim/T1.sonic-1", Switch.set_trimming,
          "port.trimmer = trimmer",
          "trimmer.queue = port.trimmer.queue; port.trimmer = trimmer"),
    Fault("a DSCP of seven bits taken", "trim/T1.sonic-1-limits", Trimmer.__init__,
          "0 <= code <= MAX_DSCP", "0 <= code <= 127"),
    Fault("a refused change is half done", "trim/T1.sonic-1-limits", Switch.set_trimming,
          "ports = self._ports.values()",
          "ports = self._ports.values(); [setattr(port, 'trimmer', None) for port in ports]"),
    Fault("one member of a bundle does not trim", "trim/T1.sonic-5", _port,
          "plan.trim is None", "plan.trim is None or port.name == 'e4'"),
    Fault("a bundle forgets to trim with its member", "trim/T1.sonic-5", Switch.set_carrier,
          "self._express.forget()",
          "self._express.forget(); [q.let_trim(False) for p in self._ports.values()"
          " for q in p.queues]"),
    Fault("begins with a way to trim of its own", "trim/T1.sonic-8", _port,
          "Trimmer(plan.trim,", "Trimmer(type(plan.trim)(dscp=48, queue=6),"),
    Fault("drop stays drop", "trim/T4.sonic-10", EgressQueue.let_trim,
          "self.trims = trims and",
          "self.trims = trims and getattr(self, 'trims', True) and"),
    Fault("trim stays trim", "trim/T4.sonic-10", EgressQueue.let_trim,
          "self.trims = trims and",
          "self.trims = (trims or getattr(self, 'trims', False)) and"),
    Fault("a change trims what waits", "trim/T4.waiting", Switch.set_trimming,
          "port.trimmer = trimmer",
          "port.trimmer = trimmer; [setattr(q, 'frames', type(q.frames)("
          "(bytes(f[0])[:256], *f[1:]) for f in q.frames)) for q in port.queues]"),
    Fault("trimming cannot be taken away", "trim/T4.sonic-12", Switch.set_trimming,
          "port.trimmer = trimmer", "port.trimmer = trimmer or port.trimmer"),
    # PFC
    Fault("PFC frame not padded", "pfc/P1", PauseSender.frame,
          "return frame", "return frame[:34]"),
    Fault("PFC to everybody", "pfc/P1", PauseSender.frame,
          "return frame", "return bytes(b'\\xff' * 6) + frame[6:]"),
    Fault("PAUSE in place of PFC", "pfc/P1", PauseSender.frame,
          "return frame", "return frame[:14] + bytes((0, 1)) + frame[16:]"),
    Fault("times that are not meant", "pfc/P2", PauseSender.frame,
          "Pfc.of(self.pending)", "Pfc(Pfc.of(self.pending).enabled, (40_000,) * 8)"),
    Fault("the class in place of the priority", "pfc/P2.priority", Lines._tell,
          "port.pfc.pending[source.priority]", "port.pfc.pending[source.index]"),
    Fault("a pause stops every class", "pfc/P3", Lines.obey,
          "port.pauses.set(priority,",
          "[port.pauses.set(each, pause_time(quanta, port.rate), now) for each in known];"
          " port.pauses.set(priority,"),
    Fault("the vector is not looked at", "pfc/P3.not-meant", Pfc.quanta.fget,
          "if self.enabled >> priority & 1", "if True"),
    Fault("the frame under way stops", "pfc/P4", Lines.obey,
          "    if port.backlog:",
          "    port.gone = type(port.gone)((at + 500_000, row) for at, row in port.gone)\n"
          "    if port.backlog:"),
    Fault("0 is no resume", "pfc/P5", Lines.obey,
          "pause_time(quanta, port.rate)", "pause_time(quanta or 0xFFFF, port.rate)"),
    Fault("a resume is noticed when the pause would end", "pfc/P5", Lines.obey,
          "if port.backlog:", "if False:"),
    Fault("a resume is for all", "pfc/P5.one", Lines.obey,
          "port.pauses.set(priority,",
          "quanta or port.pauses.until.__setitem__(slice(0, 8), [0] * 8);"
          " port.pauses.set(priority,"),
    Fault("quanta of 1000 bit times", "pfc/P6", Lines.obey,
          "pause_time(quanta, port.rate)", "pause_time(quanta, port.rate) * 1000 // 512"),
    Fault("quanta of one rate", "pfc/P6.rate", Lines.obey,
          "pause_time(quanta, port.rate)", "pause_time(quanta, 100_000_000)"),
    Fault("pauses add up", "pfc/P6.newer", Pauses.set,
          "self.until[priority] = now + time",
          "self.until[priority] = max(now, self.until[priority]) + time"),
    Fault("PFC forwarded", "pfc/P7.e1", Switch._receive_clearly,
          "self._control(ingress, frame, now)",
          "self._flood(Flood(tuple(p for p in self._ports if p != ingress.name), frame),"
          " 0, ingress)"),
    Fault("any opcode taken for PFC", "pfc/P3.opcode", Switch._control,
          "pfc = Pfc.unpack_from(frame, ETHERNET.size)",
          "pfc = Pfc(8, (1000,) * 8)"),
    Fault("XOFF never told", "pfc/P8", IngressAccount.admit,
          "if self.headroom_used or self.used >= xoff:", "if False:"),
    Fault("no headroom", "pfc/P8", IngressAccount.admit,
          "self.headroom_used + size <= self.plan.headroom", "False"),
    Fault("XON never told", "pfc/P8", IngressAccount.release,
          "self.is_off = False", "pass"),
    Fault("a pause is said once", "pfc/P8.again", Lines._refresh,
          "source.is_pausing", "False"),
    # hosts
    Fault("a host hears no pauses", "pfc/P3.host", Nic.receive,
          "self._classifiers[port](frame) == CONTROL", "False"),
    Fault("a host takes the priority for the class", "pfc/P3.host-priority", _queue,
          "priority=priority", "priority=None"),
    Fault("a host does not look at the vector", "pfc/P3.host-not-meant", Pfc.quanta.fget,
          "if self.enabled >> priority & 1", "if True"),
    Fault("a host takes any opcode for PFC", "pfc/P3.host-opcode", Nic.receive,
          "pfc = Pfc.unpack_from(frame, ETHERNET.size)",
          "pfc = Pfc(8, (1000,) * 8)"),
    Fault("a host has one time for all", "pfc/P3.host-both", Lines.obey,
          "pause_time(quanta, port.rate)", "pause_time(max(pfc.times), port.rate)"),
    Fault("a host sends what it had handed out", "pfc/P4.host", Nic.receive,
          "self._lines.obey(self._ports[port], pfc, now)",
          "self._ports[port].backlog or self._lines.obey(self._ports[port], pfc, now)"),
    Fault("0 is no resume for a host", "pfc/P5.host", Lines.obey,
          "pause_time(quanta, port.rate)", "pause_time(quanta or 0xFFFF, port.rate)"),
    Fault("pauses of a host add up", "pfc/P6.host", Pauses.set,
          "self.until[priority] = now + time",
          "self.until[priority] = max(now, self.until[priority]) + time"),
    Fault("a pause of a host has 15 bits", "pfc/P6.host-longest", Lines.obey,
          "pause_time(quanta, port.rate)", "pause_time(quanta & 0x7FFF, port.rate)"),
]  # fmt: skip
