"""Next hops of routes and SIDs: each neighbour once, each set of equal ones once.

Routes with the same hops share their paths: with one row of turns to spray by, and one table of
buckets, however many prefixes a lab has.
"""

from collections.abc import Mapping

from netem.switch.forward.adjacency import Hop, Port
from netem.switch.forward.paths import Balancer, Paths
from netem.topology.switch_plan import NextHop


class NextHops:
    """Makes hops and paths, each once."""

    def __init__(self, ports: Mapping[str, Port], balancer: Balancer) -> None:
        self._ports = ports
        self._balancer = balancer
        self._hops: dict[NextHop, Hop] = {}
        self._paths: dict[tuple[NextHop, ...], Paths] = {}

    def paths(self, hops: tuple[NextHop, ...]) -> Paths:
        """Return the paths of some hops. Raise ValueError for none, or a port that is not."""
        if not hops:
            raise ValueError("a route or a SID has no next hop")
        found = self._paths.get(hops)
        if found is None:
            found = self._balancer.paths([self._hop(hop) for hop in hops])
            self._paths[hops] = found
        return found

    def look_again(self) -> None:
        """Take note that ports are up again, or down."""
        for hop in self._hops.values():
            hop.look_again()
        for paths in self._paths.values():
            paths.look_again()

    def _hop(self, plan: NextHop) -> Hop:
        if plan.port not in self._ports:
            raise ValueError(f"next hop by {plan.port}: there is no such port")
        if plan not in self._hops:
            mac = bytes.fromhex(plan.mac.replace(":", ""))
            self._hops[plan] = Hop(self._ports[plan.port], mac)
        return self._hops[plan]
