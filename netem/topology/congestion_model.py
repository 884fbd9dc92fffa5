"""`transports.NAME.dcqcn` as types: each parameter under its name of the field, with its unit.

What is left out has the profile's value; `transports.roce.congestion.parameters` says what each
is, and has the profiles.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from netem.topology.reading import BAD, RATE, SIZE, TIME, TRUTH, Keys, OneOf, Or, Spec, Whole
from netem.topology.tree import Tree
from transports.clock import Ns
from transports.roce.congestion.parameters import PROFILES, RANGES, Dcqcn

Profile = Literal["paper", "mlx"]
PROFILE_NAMES = tuple(PROFILES)


def _whole(name: str, remark: str) -> Whole:
    return Whole(*RANGES[name], remark)


class DcqcnKeys(Spec, frozen=True, kw_only=True):
    """Both points of DCQCN, and the class of its CNPs."""

    profile: Annotated[Profile, OneOf(PROFILE_NAMES)] = "paper"
    min_time_between_cnps: Annotated[Ns | None, TIME] = None
    cnp_dscp: Annotated[int | None, _whole("cnp_dscp", "a DSCP")] = None
    cnp_802p_prio: Annotated[int, Whole(0, 7, "a priority of 802.1Q, on tagged links")] = 6
    initial_alpha_value: Annotated[int | None, _whole("initial_alpha_value", "1024 is 1")] = (
        None
    )
    dce_tcp_g: Annotated[
        int | None, _whole("dce_tcp_g", "of 1024, what alpha keeps: 1020 is g = 1/256")
    ] = None
    dce_tcp_rtt: Annotated[Ns | None, TIME] = None
    rate_reduce_monitor_period: Annotated[Ns | None, TIME] = None
    rpg_gd: Annotated[int | None, _whole("rpg_gd", "11 cuts by alpha / 2")] = None
    rpg_min_dec_fac: Annotated[
        int | None, _whole("rpg_min_dec_fac", "percent that a cut leaves at least")
    ] = None
    rpg_min_rate: Annotated[int | None, RATE] = None
    rpg_max_rate: Annotated[int | None, RATE] = None
    clamp_tgt_rate: Annotated[bool | None, TRUTH] = None
    rate_to_set_on_first_cnp: Annotated[int | None, RATE] = None
    rpg_threshold: Annotated[int | None, _whole("rpg_threshold", "steps of recovery")] = None
    rpg_time_reset: Annotated[Ns | None, TIME] = None
    rpg_byte_reset: Annotated[int | None, SIZE] = None
    rpg_ai_rate: Annotated[int | None, RATE] = None
    rpg_hai_rate: Annotated[int | None, RATE] = None


@dataclass(frozen=True, slots=True)
class DcqcnKind:
    """`none`, the name of a profile, or a mapping of parameters."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, str) and tree in PROFILES:
            return DcqcnKeys(profile="mlx" if tree == "mlx" else "paper")
        if isinstance(tree, str) and tree != "none":
            return OneOf(("none", *PROFILE_NAMES)).read(tree, path, problems)
        value = Or("none", None, Keys(DcqcnKeys)).read(tree, path, problems)
        if isinstance(value, DcqcnKeys):
            try:
                dcqcn_of(value)
            except ValueError as error:
                problems.append(f"{path}.{error}")
                return BAD
        return value


def dcqcn_of(keys: DcqcnKeys) -> Dcqcn:
    """Return the parameters: those written over those of the profile."""
    own = {
        name: value
        for name in Dcqcn.__dataclass_fields__
        if (value := getattr(keys, name, None)) is not None
    }
    return replace(PROFILES[keys.profile], **own)
