"""Numbers that both ends of a connection must know, drawn from the seed: QPNs, PSNs, keys.

Each flow has a stream of its own, so that its numbers do not depend on the other flows, but for
the rare redraw of a number that is taken. QPNs are unique in the lab and not only on their
node: a capture, a fault and a person can then tell a queue pair by its number alone.
"""

from dataclasses import dataclass, field
from random import Random

from netem.topology import draw
from netem.topology.plan import RegionPlan
from transports.roce.entropy import connection_port

FIRST_QPN = 17  # below: special, or what kernels reserve
LAST_QPN = 0xFFFFFE  # 0xFFFFFF is multicast. IBTA vol. 1, section 3.5.3
PAGE = 4096
_PORTS = 0x4000  # 0xC000 to 0xFFFF
_TRIES = 32  # Limit: after so many draws a source port may be one in use


@dataclass(slots=True)
class FlowIdentity:
    """What is drawn for one connection. PSNs are those of the two send queues."""

    requester_qpn: int
    responder_qpn: int
    requester_psn: int
    responder_psn: int
    udp_source_port: int
    requester_region: RegionPlan
    responder_region: RegionPlan


@dataclass(slots=True)
class Identities:
    """Draws identities; remembers what is taken."""

    seed: int
    _qpns: set[int] = field(default_factory=set)
    _low: set[int] = field(default_factory=set)  # 16 bits of those of MRC
    _keys: set[int] = field(default_factory=set)
    _ports: set[int] = field(default_factory=set)
    _next_page: dict[str, int] = field(default_factory=dict)  # by node

    def draw(
        self,
        flow: str,
        ends: tuple[str, str],
        sizes: tuple[int, int],
        access: tuple[int, int],
        *,
        narrow: bool = False,
    ) -> FlowIdentity:
        """Return what connects the nodes `ends`; sizes and rights are of their regions.

        The QPNs of a `narrow` one differ in their low 16 bits, which is all that MRC's answers
        carry of them.
        """
        rng = draw.stream(self.seed, f"qp/{flow}")
        one, other, port = self._queue_pairs(rng, narrow=narrow)
        return FlowIdentity(
            requester_qpn=one,
            responder_qpn=other,
            requester_psn=rng.getrandbits(24),
            responder_psn=rng.getrandbits(24),
            udp_source_port=port,
            requester_region=self._region(rng, ends[0], sizes[0], access[0]),
            responder_region=self._region(rng, ends[1], sizes[1], access[1]),
        )

    def _queue_pairs(self, rng: Random, *, narrow: bool) -> tuple[int, int, int]:
        """Return two free QPNs whose UDP source port is free as well, if that can be."""
        tries = 0
        while True:
            one, other = (FIRST_QPN + draw.below(rng, LAST_QPN - FIRST_QPN + 1) for _ in "ab")
            port = udp_source_port(one, other)
            tries += 1
            crowded = port in self._ports and tries < _TRIES
            low = {one & 0xFFFF, other & 0xFFFF} if narrow else set()
            if narrow and (len(low) < 2 or low & self._low):
                continue
            if one != other and not {one, other} & self._qpns and not crowded:
                self._low |= low
                self._qpns |= {one, other}
                self._ports.add(port)
                return one, other, port

    def _region(self, rng: Random, node: str, size: int, access: int) -> RegionPlan:
        if node not in self._next_page:
            base = draw.stream(self.seed, f"memory/{node}").getrandbits(30)
            self._next_page[node] = 0x7E00_0000_0000 + base * PAGE
        addr = self._next_page[node]
        # One page stays free behind each region: what runs over its end hits nothing.
        self._next_page[node] += (-(-size // PAGE) + 1) * PAGE
        return RegionPlan(addr, size, self._key(rng), self._key(rng), access)

    def _key(self, rng: Random) -> int:
        """Return a key that no region of the lab has, whatever its low byte is changed to."""
        while True:
            key = rng.getrandbits(32)
            if key >> 8 and key >> 8 not in self._keys:
                self._keys.add(key >> 8)
                return key


def udp_source_port(one: int, other: int) -> int:
    """Return the UDP source port of a connection: the same at both ends, constant, spread.

    The rule of kernel Soft-RoCE, which hashes the product of the QPNs (flow label 0).
    """
    return connection_port(0, one, other)
