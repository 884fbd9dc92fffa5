"""What a lab may expect: a closed list of statements, and metrics with bounds.

An `Expectation` of a plan has the name of a statement and no bound, or the name of a metric, an
operator and a value. Who judges them is netem.host; this list is what a lab file may write.
"""

from typing import Literal

STATEMENTS = {
    "all_complete": "every message has completed, whatever its status",
    "statuses": "every flow has ended with its item's expect_status",
    "no_corruption": "what lies in memory at the end is what was sent",
    "no_retransmissions": "nothing was sent twice",
}

# Of all flows together, or of those that `flow:` names.
FLOW_METRICS = {
    "completed": "messages that completed with SUCCESS",
    "packets": "packets sent by both ends, retransmissions included",
    "retransmissions": "packets sent again, by either end",
    "timeouts": "local ACK timeouts",
    "naks": "sequence NAKs that requesters received",
    "rnr_naks": "RNR NAKs that requesters received",
    "corrupt_messages": "messages whose payload was not what had been sent",
    "cnps": "congestion notifications that senders of data received",
    "rate_cuts": "how often DCQCN has cut a rate",
    "fairness": "Jain's index of the goodputs of flows, 100 % where they are equal",
    "goodput": "payload of completed messages over the duration",
    "duration": "from the first post to the last completion",
}
# Of the whole fabric.
FABRIC_METRICS = {
    "lost": "frames that links lost, those that faults dropped included",
    "cut": "of these, frames lost on links that were down",
    "marked": "frames marked CE, by switches, links and faults",
    "trimmed": "packets trimmed, by switches and faults",
    "dropped": "frames that switches lost for want of room; a trimmed one is not lost",
    "pauses": "PFC frames sent, those that end a pause included",
    "paused": "how long ports have obeyed pauses, all of them together",
    "storms": "pauses that a watchdog took for a storm",
    "deepest_queue": "bytes in the deepest queue of any switch, ever",
    "settled_queue": "bytes in the fullest queue, typically; only with `sample`",
    "paths_used": "directions between two switches or routers that carried frames",
    "encapsulated": "packets that hosts led by segments",
    "tunnelled": "packets that gateways sent through tunnels",
    "sessions": "sessions that gateways began with each other, counted at both ends",
    "roams": "peers that were heard from another place than before",
    "cookies": "handshakes that a gateway under load answered with a cookie",
    "tunnel_refused": "datagrams and packets that tunnels refused",
}
METRICS = FLOW_METRICS | FABRIC_METRICS
# Whole numbers, but for these.
RATES = frozenset({"goodput"})
TIMES = frozenset({"duration", "paused"})
SIZES = frozenset({"deepest_queue", "settled_queue"})
SHARES = frozenset({"fairness"})

BOUNDS: dict[str, Literal["==", "<", "<=", ">", ">="]] = {
    "equals": "==", "above": ">", "below": "<", "at_least": ">=", "at_most": "<=",
}  # fmt: skip
