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

# Over all flows together. Whole numbers, but for goodput in bit/s and duration in ns.
METRICS = {
    "completed": "messages that completed with SUCCESS",
    "packets": "packets sent by both ends, retransmissions included",
    "retransmissions": "packets sent again, by either end",
    "timeouts": "local ACK timeouts",
    "naks": "sequence NAKs that requesters received",
    "rnr_naks": "RNR NAKs that requesters received",
    "corrupt_messages": "messages whose payload was not what had been sent",
    "lost": "frames that links lost, those that faults dropped included",
    "goodput": "payload of completed messages over the duration",
    "duration": "from the first post to the last completion",
}

BOUNDS: dict[str, Literal["==", "<", "<=", ">", ">="]] = {
    "equals": "==", "above": ">", "below": "<", "at_least": ">=", "at_most": "<=",
}  # fmt: skip
