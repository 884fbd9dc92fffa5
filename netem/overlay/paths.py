"""How large an inner packet may be, by where the tunnel sends it.

The MTU of a tunnel is one number for all of its peers, and a path may turn out to be smaller:
its first link is, or a router on the way has said so. Then the sender inside is told (RFC 1191,
RFC 8201), since outside nothing is cut. What the kernel knows of a path is asked for the first
packet, again after a packet that did not fit, and now and then, since a path may grow.
"""

from collections.abc import Callable

from transports.clock import Ns, S
from transports.overlay.endpoint import Endpoint
from transports.overlay.limits import PADDING_MULTIPLE
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6
from wire.udp import UDP
from wire.wireguard import MIN_TRANSPORT_SIZE

ASK_AGAIN: Ns = 10 * S  # ours: a kernel keeps what an ICMP error said for ten minutes
_MOST = 4096  # endpoints that are remembered


def overhead(is_ipv4: bool) -> int:
    """Return what a tunnel adds to a packet: 60 bytes, over IPv6 80."""
    return MIN_TRANSPORT_SIZE + UDP.size + (IPV4.size if is_ipv4 else IPV6.size)


class Paths:
    """What fits, of one tunnel."""

    def __init__(self, path_mtu: Callable[[Endpoint], int | None], mtu: int) -> None:
        """`path_mtu` asks the kernel; `mtu` is the tunnel's, the limit where nobody knows."""
        self._path_mtu = path_mtu
        self._mtu = mtu
        self._known: dict[Endpoint, tuple[int, Ns]] = {}

    def limit(self, to: Endpoint, now: Ns) -> int:
        """Return how many bytes a packet for the peer at `to` may have."""
        known = self._known.get(to)
        if known is not None and now < known[1]:
            return known[0]
        path = self._path_mtu(to)
        limit = self._mtu
        if path is not None and path - overhead(len(to.address) == 4) < self._mtu:
            # What is padded to more than fits does not fit.
            limit = (
                (path - overhead(len(to.address) == 4)) // PADDING_MULTIPLE * PADDING_MULTIPLE
            )
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[to] = limit, now + ASK_AGAIN
        return limit

    def forget(self, to: Endpoint) -> None:
        """Ask again before the next packet: something did not fit."""
        self._known.pop(to, None)
