"""What is run against the kernel's Soft-RoCE: all there is, and what is chosen for CI.

Chosen are runs in which every value of every column occurs, and every pair of tool and role,
tool and family, tool and exchange. The rest is for `make interop-full`.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from wire.roce.opcodes import Service

RC, UC, UD = Service.RC, Service.UC, Service.UD
SIZES = (1, 4096, 65_537)
PATH_MTUS = (256, 512, 1024, 2048, 4096)


class Run(NamedTuple):
    """One run of one tool. Roles are ours."""

    tool: str
    role: str  # "client" or "server"
    family: int
    size: int
    path_mtu: int
    exchange: str = "tcp"
    service: Service = RC
    qps: int = 1
    kind: str = ""  # of ib_atomic: FETCH_AND_ADD or CMP_AND_SWAP

    def __str__(self) -> str:
        words = [
            self.tool, self.service.name, self.kind, f"{self.size}B", f"mtu{self.path_mtu}",
            f"{self.qps}qp", self.exchange, f"ipv{self.family}", self.role,
        ]  # fmt: skip
        return "-".join(word for word in words if word)


# Each tool with its services, sizes, path MTUs, numbers of queue pairs, kinds.
EXAMPLES = {
    "ibv_rc_pingpong": (RC, SIZES),
    "ibv_uc_pingpong": (UC, SIZES),
    "ibv_ud_pingpong": (UD, (1, 255, 1024)),
    "ibv_srq_pingpong": (RC, SIZES),
}
_ODD = (2, 4095, 65_537)
PERFTEST = {
    "ib_write_bw": ((RC, UC), _ODD, (1, 4), ("",)),
    "ib_read_bw": ((RC,), _ODD, (1, 4), ("",)),
    "ib_send_bw": ((RC, UC, UD), _ODD, (1, 4), ("",)),
    "ib_atomic_bw": ((RC,), (8,), (1, 4), ("FETCH_AND_ADD", "CMP_AND_SWAP")),
    "ib_write_lat": ((RC, UC), _ODD, (1,), ("",)),
    "ib_read_lat": ((RC,), _ODD, (1,), ("",)),
    "ib_send_lat": ((RC, UC, UD), _ODD, (1,), ("",)),
    "ib_atomic_lat": ((RC,), (8,), (1,), ("FETCH_AND_ADD", "CMP_AND_SWAP")),
}
ROLES = ("client", "server")
FAMILIES = (4, 6)
PERFTEST_MTUS = (1024, 4096)
UD_SIZES = (2, 1023)


def product() -> Iterator[Run]:
    """Yield every run there is."""
    for tool, (service, sizes) in EXAMPLES.items():
        mtus = (4096,) if service is UD else PATH_MTUS  # that of the port is UD's own
        for size, mtu, family, role in itertools.product(sizes, mtus, FAMILIES, ROLES):
            yield Run(tool, role, family, size, mtu, service=service)
    for tool, (services, sizes, qps, kinds) in PERFTEST.items():
        for service in services:
            for size, mtu, number, kind, family, role in itertools.product(
                UD_SIZES if service is UD else sizes,
                PERFTEST_MTUS, qps, kinds, FAMILIES, ROLES,
            ):  # fmt: skip
                yield Run(tool, role, family, size, mtu, "tcp", service, number, kind)
    for tool, (_, sizes, qps, kinds) in PERFTEST.items():
        for size, number, kind, role in itertools.product(sizes, qps, kinds, ROLES):
            yield Run(tool, role, 4, size, 1024, "-R", RC, number, kind)


def aims(run: Run) -> set[tuple[object, ...]]:
    """Return what a run is an example of."""
    return {
        ("size", run.tool, run.size),
        ("path MTU", run.path_mtu, run.tool.startswith("ibv")),
        ("service", run.tool, run.service),
        ("QPs", run.tool, run.qps),
        ("kind", run.tool, run.kind),
        ("role", run.tool, run.role),
        ("family", run.tool, run.family),
        ("exchange", run.tool, run.exchange),
        ("service and role", run.service, run.role),
    }


def chosen() -> list[Run]:
    """Return few runs that together are an example of everything: greedy, in a fixed order."""
    runs = list(product())
    left = set().union(*map(aims, runs))
    found = []
    while left:
        best = max(runs, key=lambda run: len(aims(run) & left))
        found.append(best)
        left -= aims(best)
    return found
