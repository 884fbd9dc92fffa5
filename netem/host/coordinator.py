"""Knows which items of the workload are complete on all their flows, over all nodes.

`after:` orders items across the whole lab, so one place must see every `item_done`: the
launcher, or the simulator. What it says goes to every node as `release`.
"""

from netem.topology.plan import Plan


class Coordinator:
    """Counts the flows of each item down."""

    def __init__(self, plan: Plan) -> None:
        self._open: dict[int, set[str]] = {}
        self._wanted: set[int] = set()  # items that others wait for
        for node in plan.nodes:
            for qp in node.qps:
                for work in qp.work:
                    self._open.setdefault(work.item, set()).add(qp.flow)
                    if work.after is not None:
                        self._wanted.add(work.after)

    def item_done(self, flow: str, item: int) -> list[int]:
        """Take note that `item` is complete on `flow`; return what to release everywhere."""
        flows = self._open.get(item)
        if not flows or flow not in flows:
            return []
        flows.discard(flow)
        return [item] if not flows and item in self._wanted else []

    @property
    def is_done(self) -> bool:
        """Say whether every item is complete on every flow."""
        return not any(self._open.values())

    def missing(self) -> list[tuple[int, str]]:
        """Return item and flow of all that is not complete, in order."""
        return sorted((item, flow) for item, flows in self._open.items() for flow in flows)
