"""From a plan to how MRC is on the wire: the encapsulation, and readings of disputed points."""

from collections.abc import Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address

from netem.topology.plan import MrcPlan, MrcReadings, MrcTemplate, NodePlan
from transports.mrc.config import AckMsn, OorPolicy, QpConfig
from transports.mrc.frames import Encapsulation, PlainIpv6
from transports.mrc.ipv4 import PlainIpv4
from transports.mrc.paths import LossRule
from transports.mrc.srv6 import Slot, Srv6, Template
from wire.mrc.options import BthBitOrder, EvSplit, WireOptions

_BIT_ORDERS = {"m_se": BthBitOrder.M_SE, "se_m": BthBitOrder.SE_M}
_SPLITS = {"label_high": EvSplit.LABEL_HIGH, "label_low": EvSplit.LABEL_LOW}
_ALWAYS = frozenset({LossRule.L1, LossRule.L4, LossRule.L5})


def encapsulation_of(
    node: NodePlan, plans: Sequence[MrcPlan], options: WireOptions
) -> Encapsulation:
    """Return how the packets of a host's NIC lie in IP."""
    if any(port.ipv4 is not None for port in node.ports):
        return PlainIpv4()
    if plans[0].ev_format != "srv6":
        return PlainIpv6(options)
    own = [
        IPv6Network(sid.prefix).network_address.packed
        for sid in node.sids
        if sid.behaviour == "uDT6"
    ]
    srv6 = Srv6(options, own)
    for plan in plans:
        for address, template in zip(plan.remote, plan.there, strict=True):
            if address is not None and template is not None:
                srv6.add(ip_address(address).packed, template_of(template))
    return srv6


def template_of(plan: MrcTemplate) -> Template:
    """Return the ways to an address."""
    slots = tuple(Slot(*slot) for slot in plan.slots)
    return Template(IPv6Address(plan.block).packed, slots, plan.ways)


def wire_options(readings: MrcReadings) -> WireOptions:
    """Return the readings that have bytes."""
    return WireOptions(
        readings.udp_dport,
        _BIT_ORDERS[readings.bth_bit_order],
        _SPLITS[readings.ev_split],
        readings.eeth_op_shift,
        readings.icrc,
        readings.port_mask_base,
    )


def qp_config(plan: MrcPlan) -> QpConfig:
    """Return a queue pair's limits and readings."""
    readings = plan.readings
    early = {LossRule[name] for name in readings.loss_rules} if plan.early_loss else set()
    return QpConfig(
        trimming=plan.trimming,
        trim_nack=plan.trimming,
        loss_rules=_ALWAYS | early,
        oor_policy=OorPolicy(readings.oor_policy),
        ack_msn=AckMsn(readings.ack_msn),
        always_skip_run=readings.always_skip_run,
    )
