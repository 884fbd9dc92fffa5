"""Single faults for MRC's paths, planes, losses and retries."""

from tests.netem.conform.faults import Fault
from transports.mrc import losses
from transports.mrc.departures import Departures
from transports.mrc.device import Device
from transports.mrc.endpoint import Endpoint
from transports.mrc.frames import PlainIpv6
from transports.mrc.outgoing import OutMessages
from transports.mrc.paths import Paths
from transports.mrc.qp import QueuePair
from transports.mrc.rendering import Renderer
from transports.mrc.requestor import Requestor
from transports.mrc.reverse import Reverse
from transports.mrc.timers import RetryPolicy

_MALFORMED = "return RefusalReason.MALFORMED"

MRC_FAULTS = [
    Fault("halves of an EV read the other way round", "mrc/H5.1", PlainIpv6.read,
          "entropy.join(word & 0xFFFFF, port,", "entropy.join(port, word & 0xFFFF,"),
    Fault("halves of an EV sent the other way round", "mrc/H5.sends", PlainIpv6.head,
          "label, port =", "port, label ="),
    Fault("reserved bits of a WRITE refused", "mrc/H6", Device._receive_write,
          "self.oddities[Oddity.RESERVED_NONZERO] += 1", _MALFORMED),
    Fault("reserved bits sent", "mrc/H6", Renderer._packet, "middle[4] = 0", "pass"),
    Fault("reserved bits of a SACK refused", "mrc/H6.answers", Device._receive_sack,
          "self.oddities[Oddity.RESERVED_NONZERO] += 1", _MALFORMED),
    Fault("reserved bits of hosts refused", "mrc/H6.host", Device._unpack,
          "self.oddities[Oddity.RESERVED_NONZERO] += 1", "return None"),
    Fault("no loss by what came later on the EV", "mrc/L2", Requestor._infer,
          "self.overtaking is not None", "False"),
    Fault("whatever is missing is lost", "mrc/L2.other", Requestor._infer,
          "self.overtaking.lost(board, cack, base, seth.sack_bitmap)",
          "[s for s in board.holes(board.highest_acked) if s.is_in_flight]"),
    Fault("any disorder is patience", "mrc/L3", losses.reordering_limit,
          "max(MIN_REORDERING,", "max(1000,"),
    Fault("five out of order are too many", "mrc/L3.few", losses.reordering_limit,
          "return max(MIN_REORDERING, min(cwnd + cwnd // 2, max_cwnd) // packet)", "return 5"),
    Fault("young packets are lost by disorder", "mrc/L3.young", losses.below_the_highest,
          "now - sent.sent_at > OLD * base_rtt", "True"),
    Fault("probes show nothing", "mrc/L5", losses.shown_by_probe,
          "gap is not None", "False"),
    Fault("probes show what was sent just before", "mrc/L5", Requestor._infer,
          "asked.sent_at - congestion.base_rtt - congestion.target", "now"),
    Fault("retries do not double", "mrc/Q4", RetryPolicy.interval,
          "self.rto << min(max(0, retries + 1 - self.linear), _MOST_DOUBLINGS)", "self.rto"),
    Fault("a retry more than agreed", "mrc/Q4", RetryPolicy.is_exhausted,
          "self.linear + self.exponential", "self.linear + self.exponential + 1"),
    Fault("as many immediates as one likes", "mrc/Q6", OutMessages.current,
          "self._imms >= max_imms", "False"),
    Fault("marks are ignored", "mrc/E1", Paths.on_marked,
          "self._skip(ev, MARKED_TURNS)", "False"),
    Fault("a mark retires", "mrc/E1", Paths.on_marked,
          "self._skip(ev, MARKED_TURNS)", "self._retire(self._all[ev], 'mark')"),
    Fault("trims are ignored", "mrc/E1.trim", Paths.on_trimmed,
          "self._skip(ev, TRIMMED_TURNS)", "False"),
    Fault("a trim retires", "mrc/E1.trim", Paths.on_trimmed,
          "self._skip(ev, TRIMMED_TURNS)", "self._retire(self._all[ev], 'trim')"),
    Fault("a loss retires nothing", "mrc/E2", Paths.on_lost,
          "rule is LossRule.L1", "True"),
    Fault("backups stay out", "mrc/E2", Paths._fill, "not spares", "True"),
    Fault("a retired EV comes back unasked", "mrc/E3", Paths._retire,
          "self._fill(path)", "path.state = EvState.GOOD"),
    Fault("one answer is enough", "mrc/E3", Paths.on_probe_answer,
          "path.streak < path.wanted", "False"),
    Fault("a retired EV is forgotten", "mrc/E3", Paths._retire,
          "self._start_probing(path)", "pass"),
    Fault("probes keep their pace", "mrc/E3.silent", Paths.probes,
          "min(2 * path.interval, longest)", "path.interval"),
    Fault("two planes of four", "mrc/E4", Paths._walk,
          "self._position ^ self._mask", "(self._position ^ self._mask) & ~1"),
    Fault("what a peer says of its ports is not heard", "mrc/E5", QueuePair.ports_changed,
          "self._endpoint.ports & self._met.mask", "self._endpoint.ports"),
    Fault("ports of one's own do not count", "mrc/E5.here", QueuePair.ports_changed,
          "self._endpoint.ports & self._met.mask", "self._met.mask"),
    Fault("a port that fell is told to nobody", "mrc/E5.here", Endpoint.set_ports,
          "peer.repeats, peer.next_at = REPEATS, now", "pass"),
    Fault("answers go by a port that is down", "mrc/E5.answers", Reverse.next,
          "self.ports >> plane & 1", "True"),
    Fault("an answer with an id of its own", "mrc/E6", Endpoint.receive_request,
          "psn & 0xFFFF", "psn + 1 & 0xFFFF"),
    Fault("host to host as data", "mrc/E6", Departures.of_endpoint,
          "if out.is_control else", "if False else"),
    Fault("port states are answered", "mrc/E6.ports", Endpoint.receive_request,
          "erth.op == EndpointOp.EV_PROBE", "True"),
    Fault("answers are not looked at", "mrc/E6.asks", Endpoint.receive_response,
          "asked is None or", "True or"),
    Fault("any answer will do", "mrc/E6.foreign", Endpoint.receive_response,
          "asked = self._asked.get(psn & 0xFFFF)",
          "psn = next(iter(self._asked)); asked = self._asked[psn]"),
]  # fmt: skip
