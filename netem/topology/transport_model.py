"""`transports.NAME` as types: the attributes of queue pairs, RC's and MRC's.

`kind` says which keys there are. `MrcSpec` is a `TransportSpec` to whoever asks for what both
have: kind, path MTU, how much memory a window of packets takes.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec.structs import replace

from netem.topology.congestion_model import DcqcnKeys, DcqcnKind
from netem.topology.errors import shown
from netem.topology.plan import MrcReadings
from netem.topology.reading import (
    BAD,
    RATE,
    RNR_TIMER,
    TIME,
    TRUTH,
    AtLeast,
    Items,
    Keys,
    OneOf,
    Or,
    Spec,
    Whole,
    keys_of,
    read_keys,
)
from netem.topology.srv6_model import PATH, Encaps, EncapsKind
from netem.topology.tree import Tree
from transports.clock import MS, Ns
from wire.mrc.options import PORTS

Ecn = Literal["off", "ect0", "ect1"]
Kind = Literal["rc", "mrc"]
Connect = Literal["given", "cm", "setup"]
EvFormatName = Literal["stev32", "udp16", "srv6"]


class TransportSpec(Spec, frozen=True, kw_only=True):
    """A named set of queue pair attributes."""

    kind: Annotated[Kind, OneOf(("rc", "mrc"), not_yet=("uc", "ud"))] = "rc"
    mtu: Annotated[int, OneOf((256, 512, 1024, 2048, 4096))] = 1024
    connect: Annotated[Connect, OneOf(("given", "cm"))] = "given"
    timeout: Annotated[
        int, Whole(0, 31, "4.096us x 2^n: 14 is 67.1ms, 10 is 4.19ms; 0 waits for ever")
    ] = 14
    retry: Annotated[int, Whole(0, 7, "resends after a timeout or sequence NAK")] = 7
    rnr_retry: Annotated[int, Whole(0, 7, "resends after an RNR NAK; 7 is for ever")] = 7
    rnr_timer: Annotated[int, RNR_TIMER] = 12  # the code, which nobody writes
    max_rd_atomic: Annotated[int, Whole(1, 128)] = 16
    max_dest_rd_atomic: Annotated[int | None, Whole(1, 128)] = None  # as max_rd_atomic
    window: Annotated[int, Whole(1, 65536, "packets unacknowledged")] = 128
    credits: Annotated[bool, TRUTH] = False
    tc: Annotated[int | None, Whole(0, 255, "DSCP x 4 + ECN")] = None
    dscp: Annotated[int | None, Whole(0, 63, "a DSCP")] = None
    ecn: Annotated[Ecn | None, OneOf(("off", "ect0", "ect1"))] = None
    pcp: Annotated[int | None, Whole(0, 7, "a priority of 802.1Q")] = None
    ack_dscp: Annotated[int | None, Whole(0, 63, "a DSCP")] = None
    dcqcn: Annotated[DcqcnKeys | None, DcqcnKind()] = None
    path: Annotated[tuple[str, ...] | None, PATH] = None
    path_back: Annotated[tuple[str, ...] | None, PATH] = None
    encaps: Annotated[Encaps | None, EncapsKind()] = None

    @property
    def window_packets(self) -> int:
        """Most packets that are under way at a time."""
        return self.window


# Ours: below, timers and updates of ports would take all the time that there is.
LEAST_RTT = AtLeast(TIME, 100, "100ns or more")
LEAST_UPDATES = AtLeast(TIME, 10_000, "10us or more, about a round trip")


class ReadingKeys(Spec, frozen=True, kw_only=True):
    """Readings of disputed points, by the names of mrc.md 12.18. None: not written."""

    udp_dport: Annotated[int | None, OneOf(PORTS)] = None
    bth_bit_order: Annotated[Literal["m_se", "se_m"] | None, OneOf(("m_se", "se_m"))] = None
    ev_split: Annotated[
        Literal["label_high", "label_low"] | None, OneOf(("label_high", "label_low"))
    ] = None
    eeth_op_shift: Annotated[int | None, OneOf((2, 4))] = None
    icrc: Annotated[bool | None, TRUTH] = None
    port_mask_base: Annotated[int | None, OneOf((0, 1))] = None
    oor_policy: Annotated[Literal["nack", "drop"] | None, OneOf(("nack", "drop"))] = None
    probe_skip_result: Annotated[Literal["skip", "good"] | None, OneOf(("skip", "good"))] = None
    ack_msn: Annotated[Literal["count", "last"] | None, OneOf(("count", "last"))] = None
    always_skip_run: Annotated[int | None, Whole(1, 65535, "packets in a row")] = None
    loss_rules: Annotated[
        tuple[Literal["L2", "L3"], ...] | None, Items(OneOf(("L2", "L3")), most=2)
    ] = None

    def over(self, below: MrcReadings) -> MrcReadings:
        """Return what is written here over `below`."""
        written = {
            name: value
            for name in keys_of(ReadingKeys)
            if (value := getattr(self, name)) is not None
        }
        return replace(below, **written)


class MrcSpec(TransportSpec, frozen=True, kw_only=True):
    """The same for MRC. `timeout` and `mtu` have other ranges and defaults."""

    kind: Annotated[Kind, OneOf(("mrc",))] = "mrc"
    mtu: Annotated[int, OneOf((256, 512, 1024, 2048, 4096))] = 4096
    connect: Annotated[Connect, OneOf(("given", "setup"))] = "given"
    timeout: Annotated[int, Whole(0, 24, "1.024us x 2^n: 8 is 262us, 10 is 1.05ms")] = 8
    linear: Annotated[int, Whole(0, 7, "expiries at that interval")] = 7
    exponential: Annotated[int, Whole(0, 25, "then expiries that double it; 25: for ever")] = 7
    paths: Annotated[int, Whole(1, 256, "entropy values in use, and as many spares")] = 128
    ev_format: Annotated[EvFormatName, OneOf(("stev32", "udp16", "srv6"))] = "stev32"
    min_active: Annotated[int | None, Whole(1, 256, "EVs that are never all retired")] = None
    mpr: Annotated[int, Whole(1, 255, "the window, in units of 128 packets")] = 8
    dynamic_mpr: Annotated[bool, TRUTH] = False
    max_wimm: Annotated[int, Whole(0, 65535, "WRITEs with immediate at a time")] = 128
    trimming: Annotated[bool, TRUTH] = True
    early_loss: Annotated[bool, TRUTH] = True
    quick_adapt: Annotated[bool, TRUTH] = True
    base_rtt: Annotated[Ns | None, Or("auto", None, LEAST_RTT)] = None
    rate: Annotated[int | None, Or("auto", None, RATE)] = None
    port_updates: Annotated[Ns | None, Or("none", None, LEAST_UPDATES)] = 5 * MS
    readings: Annotated[ReadingKeys | None, Keys(ReadingKeys)] = None
    peer_readings: Annotated[ReadingKeys | None, Keys(ReadingKeys)] = None
    pin: Annotated[Ns | None, Or("none", None, TIME)] = None

    @property
    def window_packets(self) -> int:
        return 128 * self.mpr

    @property
    def both_readings(self) -> tuple[MrcReadings, MrcReadings]:
        """The requester's, and the responder's, who may differ in what `peer_readings` says."""
        ours = MrcReadings() if self.readings is None else self.readings.over(MrcReadings())
        return ours, ours if self.peer_readings is None else self.peer_readings.over(ours)


_OWN = set(keys_of(MrcSpec)) - set(keys_of(TransportSpec))
_OF_MRC = _OWN | {"kind", "mtu", "timeout", "connect"}


@dataclass(frozen=True, slots=True)
class TransportKind:
    """A transport, by its `kind`; keys of the other kind are refused by name."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict) or tree.get("kind") != "mrc":
            if isinstance(tree, dict):
                tree = _only(tree, set(keys_of(TransportSpec)), _OWN, path, problems)
            value = read_keys(TransportSpec, {} if tree is None else tree, path, problems)
        else:
            others = set(keys_of(TransportSpec)) - _OF_MRC
            value = read_keys(
                MrcSpec, _only(tree, _OF_MRC, others, path, problems), path, problems
            )
        return BAD if value is None else value


def _only(
    tree: dict[str, Tree], own: set[str], foreign: set[str], path: str, problems: list[str]
) -> dict[str, Tree]:
    """Return what is written without the keys of the other kind, which are noted."""
    kind = tree.get("kind", "rc")
    for key in tree:
        if key in foreign:
            legal = ", ".join(sorted(own))
            problems.append(f"{path}.{key}: kind {shown(kind)} has no such key; legal: {legal}")
    return {key: value for key, value in tree.items() if key not in foreign}
