"""Verbs as small classes for trio: queue pairs of ours on an interface or a UDP port.

All that a traffic script needs is here; see README.md for one of twenty lines.
"""

from netem.verbs.context import Context, open_device
from netem.verbs.links import VerbsError
from netem.verbs.objects import (
    CompletionQueue,
    MemoryRegion,
    ProtectionDomain,
    QueuePair,
    SharedReceiveQueue,
)
from netem.verbs.rdma_cm import (
    Connection,
    DatagramService,
    Listener,
    RejectedError,
    Request,
)
from netem.verbs.tcp import Endpoint, accept, connect
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.opcodes import Service

__all__ = [
    "Access",
    "AddressHandle",
    "CompletionQueue",
    "Connection",
    "Context",
    "DatagramService",
    "Endpoint",
    "Listener",
    "MemoryRegion",
    "ProtectionDomain",
    "QpState",
    "QueuePair",
    "RecvWr",
    "RejectedError",
    "Request",
    "SendWr",
    "Service",
    "Sge",
    "SharedReceiveQueue",
    "VerbsError",
    "WcOpcode",
    "WcStatus",
    "WorkCompletion",
    "WrOpcode",
    "accept",
    "connect",
    "open_device",
]
