"""How long a run will take at the least, told before it when that is long."""

from collections import defaultdict

from netem.topology.plan import Plan
from transports.clock import S

LONG_S = 10.0  # of wall time; shorter runs need no announcement


def expected_wall_s(plan: Plan) -> float:
    """Return a lower bound in wall seconds: what the rates of the first links take alone.

    Queue pairs that share a port share its rate; items wait for those that they come `after`.
    Delays, losses and windows come on top.
    """
    own: dict[int, float] = defaultdict(float)  # item: emulated seconds on its busiest port
    begins: dict[int, tuple[int | None, float]] = {}
    for node in plan.nodes:
        rates = {port.name: port.egress.rate for port in node.ports}
        spent: dict[tuple[int, str], float] = defaultdict(float)
        for qp in node.qps:
            rate = rates[qp.port]
            for work in qp.work:
                begins[work.item] = work.after, (work.at or 0) / S
                if rate:
                    spent[work.item, qp.port] += work.size * work.count * 8 / rate
        for (item, _), seconds in spent.items():
            own[item] = max(own[item], seconds)
    ends: dict[int, float] = {}
    for item in sorted(begins):  # an item comes after earlier ones only
        after, at = begins[item]
        ends[item] = max(at, ends.get(after, 0.0) if after is not None else 0.0) + own[item]
    return max(ends.values(), default=0.0) * plan.dilation
