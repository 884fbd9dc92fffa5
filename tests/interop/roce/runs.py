"""What is run against the kernel's Soft-RoCE: all there is, and what is chosen for CI.

Chosen are runs in which every value of every column occurs, and every pair of tool and role,
tool and family, tool and exchange. The rest is for `make interop-full`.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from wire.roce.opcodes import Service

Some = TypeVar("Some")
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
    exchange: str = "tcp"  # or "-R": by rdma_cm
    service: Service = RC
    qps: int = 1
    kind: str = ""  # of ib_atomic: FETCH_AND_ADD or CMP_AND_SWAP
    option: str = ""  # of perftest: "-b", both ways at once, or "--tclass"

    def __str__(self) -> str:
        words = [
            self.tool, self.service.name, self.kind, f"{self.size}B", f"mtu{self.path_mtu}",
            f"{self.qps}qp", self.exchange, self.option.lstrip("-"), f"ipv{self.family}",
            self.role,
        ]  # fmt: skip
        return "-".join(word for word in words if word)


# Each tool with its services, sizes, path MTUs, numbers of queue pairs, kinds.
EXAMPLES = {
    "ibv_rc_pingpong": (RC, (1, 1024, 4096, 65_537)),
    "ibv_uc_pingpong": (UC, SIZES),
    "ibv_ud_pingpong": (UD, (1, 255, 1024, 4096)),
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
# Of librdmacm: the service, and sizes. rdma_client stands for its server, too.
BY_CM = {
    "rping": (RC, (64, 3000)),
    "ucmatose": (RC, (100,)),
    "rdma_client": (RC, (16,)),
    "udaddy": (UD, (100,)),
}
ROLES = ("client", "server")
FAMILIES = (4, 6)
PERFTEST_MTUS = (1024, 4096)
UD_SIZES = (2, 1023)
BOTH_WAYS, WITH_CLASS = "-b", "--tclass"


def product() -> Iterator[Run]:
    """Yield every run there is."""
    yield from _examples()
    yield from _perftest("tcp", FAMILIES, PERFTEST_MTUS)
    yield from _perftest("tcp", FAMILIES, (1024,), BOTH_WAYS)
    yield from _with_class("tcp", FAMILIES)
    # perftest 4.5 resolves names for rdma_cm to IPv4 only, and refuses UC there.
    yield from _perftest("-R", (4,), (1024,))
    yield from _perftest("-R", (4,), (1024,), BOTH_WAYS)
    yield from _with_class("-R", (4,))
    for tool, (service, sizes) in BY_CM.items():
        # The path MTU is the one that rdma_cm makes of the interface's, either way.
        for size, family, role in itertools.product(sizes, FAMILIES, ROLES):
            yield Run(tool, role, family, size, 4096, "-R", service)


def _examples() -> Iterator[Run]:
    for tool, (service, sizes) in EXAMPLES.items():
        mtus = (4096,) if service is UD else PATH_MTUS  # that of the port is UD's own
        for size, mtu, family, role in itertools.product(sizes, mtus, FAMILIES, ROLES):
            yield Run(tool, role, family, size, mtu, service=service)


def _perftest(
    exchange: str, families: tuple[int, ...], mtus: tuple[int, ...], option: str = ""
) -> Iterator[Run]:
    """Yield the runs of perftest with one exchange; with `option`, of those that have it."""
    for tool, (services, sizes, qps, kinds) in PERFTEST.items():
        if option and tool.endswith("_lat"):
            continue
        for service in services:
            if exchange == "-R" and service is UC:
                continue
            for size, mtu, number, kind, family, role in itertools.product(
                UD_SIZES if service is UD else sizes, mtus, qps, kinds, families, ROLES
            ):
                yield Run(
                    tool, role, family, size, mtu, exchange, service, number, kind, option
                )


def _with_class(exchange: str, families: tuple[int, ...]) -> Iterator[Run]:
    """Yield one size of each that says a traffic class: sizes have nothing to do with it."""
    for run in _perftest(exchange, families, (1024,), WITH_CLASS):
        if run.size in {8, 1023, 4095} and run.qps == 1:
            yield run


def aims(run: Run) -> set[tuple[object, ...]]:
    """Return what a run is an example of."""
    return {
        ("size", run.tool, run.size),
        ("path MTU", run.path_mtu, run.tool.partition("_")[0]),
        ("service", run.tool, run.service),
        ("QPs", run.tool, run.qps),
        ("kind", run.tool, run.kind),
        ("role", run.tool, run.role),
        ("family", run.tool, run.family),
        ("exchange", run.tool, run.exchange),
        ("service and role", run.service, run.role),
        ("service and exchange", run.service, run.exchange),
        ("exchange and role", run.exchange, run.role),
        ("option", run.tool, run.option),
        ("option and role", run.option, run.role),
        ("option and family", run.option, run.family),
        ("option and exchange", run.option, run.exchange),
        # Clauses cm/C26 and C27 name them.
        ("rping", run.tool == "rping", run.role, run.family),
        ("ib_write_bw -R", (run.tool, run.exchange) == ("ib_write_bw", "-R"), run.role),
    }


def chosen() -> list[Run]:
    """Return few runs that together are an example of everything."""
    return fewest(list(product()), aims)


class Impaired(NamedTuple):
    """A run over a link that does something to frames, both ways."""

    how: str
    run: Run

    def __str__(self) -> str:
        return f"{self.how}-{self.run}"


LOSES, DUPLICATES, REORDERS = "loses", "duplicates", "reorders"
# What each tool of RC sends there: several packets where it can be.
_RELIABLE = {
    "ibv_rc_pingpong": 4096, "ibv_srq_pingpong": 4096,
    "ib_write_bw": 65_537, "ib_read_bw": 65_537, "ib_send_bw": 65_537, "ib_atomic_bw": 8,
    "ib_write_lat": 4095, "ib_read_lat": 4095, "ib_send_lat": 4095, "ib_atomic_lat": 8,
    "rping": 3000, "ucmatose": 100, "rdma_client": 16,
}  # fmt: skip
# UC and UD send nothing again: a tool that waits for each message waits for ever where one is
# lost. And a message of one packet is new to them however often it comes, so a ping-pong of UC
# or UD in which each is answered has no end that both see. What is left: who only writes, or
# only sends, to us; and messages of one packet that come late, or twice where none is answered.
_UNRELIABLE = {
    LOSES: ("ib_write_bw", "ib_send_bw"),
    DUPLICATES: ("ib_write_bw", "ib_write_lat", "ib_send_bw", "udaddy"),
    REORDERS: (
        "ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat",
        "ibv_uc_pingpong", "ibv_ud_pingpong", "udaddy",
    ),
}  # fmt: skip
# Tool and service to size and path MTU there: one packet, but for WRITEs, which nobody counts.
_FORMS = {
    ("ib_write_bw", UC): (4095, 1024),
    ("ib_write_lat", UC): (4095, 4096),
    ("ib_send_bw", UC): (4095, 4096),
    ("ib_send_lat", UC): (4095, 4096),
    ("ib_send_bw", UD): (1023, 1024),
    ("ib_send_lat", UD): (1023, 1024),
    ("ibv_uc_pingpong", UC): (4096, 4096),
    ("ibv_ud_pingpong", UD): (1024, 4096),
    ("udaddy", UD): (100, 4096),
}


def impaired() -> Iterator[Impaired]:
    """Yield every run over a link that impairs: each reliable tool, kind, exchange and family.

    Of UC and UD those that can end. One size and path MTU, one queue pair.
    """
    for how, unreliable in _UNRELIABLE.items():
        for run in product():
            if run.qps > 1 or run.option:
                continue
            if run.service is RC:
                mtu = 4096 if run.tool in BY_CM else 1024
                if (run.size, run.path_mtu) == (_RELIABLE[run.tool], mtu):
                    yield Impaired(how, run)
            elif run.tool in unreliable and (run.exchange == "tcp" or run.tool in BY_CM):
                # Over loss a tool that is to receive all never ends.
                ends = how != LOSES or run.role == "server" or "write" in run.tool
                is_form = (run.size, run.path_mtu) == _FORMS[run.tool, run.service]
                if ends and is_form:
                    yield Impaired(how, run)


def aims_impaired(one: Impaired) -> set[tuple[object, ...]]:
    """Return what a run over a link that impairs is an example of."""
    how, run = one
    return {
        ("tool", how, run.tool, run.service),
        ("role", how, run.role, run.service),
        ("family", how, run.family),
        ("exchange", how, run.exchange),
        ("tool and role", run.tool, run.role),
        ("tool and family", run.tool, run.family),
        ("tool and exchange", run.tool, run.exchange),
        ("kind", run.tool, run.kind),
    }


def chosen_impaired() -> list[Impaired]:
    """Return few of those that together are an example of everything."""
    return fewest(list(impaired()), aims_impaired)


def fewest(runs: list[Some], aims: Callable[[Some], set[tuple[object, ...]]]) -> list[Some]:
    """Return few of `runs` that together are an example of all: greedy, in a fixed order."""
    left = set().union(*map(aims, runs))
    found = []
    while left:
        best = max(runs, key=lambda run: len(aims(run) & left))
        found.append(best)
        left -= aims(best)
    return found
