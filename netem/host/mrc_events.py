"""What MRC tells of itself, in words: rows of events.jsonl.

event           fields
retransmission  qp psn why ev last_ev      a packet was sent again: by which rule, on what
ev_state        qp ev plane old new why    a path was retired, replaced, found good again
window          qp old new why             the congestion window shrank, or grew before that
peer_ports      why                        the peer says which of its ports are up
ev_probed       ev plane why               an EV probe was answered, or was not
mismatch        qp why                     the two ends read a disputed point differently
"""

from ipaddress import ip_address

from netem.host.events import RETRANSMISSION, Chronicle
from transports.clock import US, Ns
from transports.mrc.events import EvProbed, Mismatch, PeerPorts, QpFailed, Retransmitted
from transports.mrc.paths import PathEvent
from transports.mrc.profiles import MAX_PLANES


def tell_path(chronicle: Chronicle, qp_num: int, event: PathEvent) -> None:
    """Tell how a path changed its state."""
    chronicle.add(
        event.at,
        "ev_state",
        qp=qp_num,
        ev=f"{event.ev:#010x}",
        plane=event.port,
        old=event.old.value,
        new=event.new.value,
        why=event.cause,
    )


def told(chronicle: Chronicle, event: object, now: Ns) -> bool:
    """Tell one event of the device; False for one that is another's, a completion."""
    match event:
        case Retransmitted():
            chronicle.add(
                event.at,
                RETRANSMISSION,
                qp=event.qp_num,
                psn=event.psn,
                why=event.why,
                ev=f"{event.ev:#010x}",
                last_ev=f"{event.last_ev:#010x}",
            )
        case QpFailed():
            chronicle.add(event.at, "qp_fatal", qp=event.qp_num, why=event.detail)
        case PeerPorts():
            peer = next(ip_address(ip) for ip in event.peer if ip is not None)
            why = f"{peer} says {_planes(event.mask)} are up, before {_planes(event.before)}"
            chronicle.add(event.at, "peer_ports", why=why)
        case EvProbed():
            answer = (
                "no answer" if event.rtt is None else f"answered in {event.rtt / US:.1f} us"
            )
            chronicle.add(
                event.at, "ev_probed", ev=f"{event.ev:#010x}", plane=event.plane, why=answer
            )
        case Mismatch():
            chronicle.add(
                now, "mismatch", qp=event.qp_num, why=f"{event.point}: {event.detail}"
            )
        case _:
            return False
    return True


def _planes(mask: int) -> str:
    """Return the planes of a mask in words."""
    found = [f"p{plane}" for plane in range(MAX_PLANES) if mask >> plane & 1]
    return ", ".join(found) or "no ports"
