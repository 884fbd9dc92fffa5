"""Knows which items of the workload are complete on all their flows, over all nodes.

`after:` orders items across the whole lab, so one place must see every `item_done`: the
launcher, or the simulator. What it says goes to every node as `release`.
"""

from netem.topology.plan import Plan


class Coordinator:
    """Counts the flows of each item down."""

    def __init__(self, plan: Plan) -> None:
        self.finished = 0  # flows of items, as `total`
        self._open: dict[int, set[str]] = {}
        self._wanted: set[int] = set()  # items that others wait for
        self._requests: dict[str, list[tuple[str, int]]] = {}  # flow and item, by requester
        self.released: list[int] = []  # items, in their order
        self._ends: dict[str, set[str]] = {}
        for node in plan.nodes:
            for qp in node.qps:
                self._ends.setdefault(qp.flow, set()).add(node.name)
                for work in qp.work:
                    self._open.setdefault(work.item, set()).add(qp.flow)
                    self._requests.setdefault(node.name, []).append((qp.flow, work.item))
                    if work.after is not None:
                        self._wanted.add(work.after)
        self.total = sum(map(len, self._open.values()))

    def item_done(self, flow: str, item: int) -> list[int]:
        """Take note that `item` is complete on `flow`; return what to release everywhere."""
        flows = self._open.get(item)
        if not flows or flow not in flows:
            return []
        flows.discard(flow)
        self.finished += 1
        if flows or item not in self._wanted:
            return []
        self.released.append(item)
        return [item]

    def excuse(self, node: str) -> list[int]:
        """Take note that a node is gone for good; return what to release everywhere.

        Nobody waits for what it was to request any more.
        """
        released = []
        for flow, item in self._requests.get(node, ()):
            released += self.item_done(flow, item)
        return released

    def ends(self, flow: str) -> set[str]:
        """Return the nodes that a flow has an end at."""
        return set(self._ends.get(flow, ()))

    @property
    def done(self) -> bool:
        """Say whether every item is complete on every flow."""
        return self.finished == self.total

    def missing(self) -> list[str]:
        """Return the flows with an item that is not complete, in order."""
        return sorted({flow for flows in self._open.values() for flow in flows})
