"""MRC: its BTH, and the headers behind it. OCP MRC 1.0, tables 6-3 to 7-23 (as cited).

The order of the headers is that of our codecs (`wire.mrc.packet`); names of fields are theirs.
"""

from collections.abc import Sequence
from typing import Any

from scapy.contrib.roce import AETH, BTH
from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    FCSField,
    Field,
    ShortField,
    SignedShortField,
    X3BytesField,
    XBitField,
    XByteField,
    XIntField,
    XLongField,
    XShortField,
    _FieldContainer,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, bind_bottom_up, bind_layers, bind_top_down

from netem.scapy_layers.roce import CLAIMS, HEADERS_OF, IMMDT, RETH, Extension
from wire.mrc import endpoint, eths, reliability
from wire.mrc.bth import MrcBth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.options import PORTS
from wire.mrc.packet import headers_of
from wire.roce import eths as roce_eths
from wire.roce.icrc import ICRC, icrc

AnyField = Field[Any, Any] | _FieldContainer  # as scapy has them: values of any type

_OPCODES = {int(opcode): opcode.name for opcode in MrcOpcode}
_VERDICTS = {int(verdict): verdict.name for verdict in reliability.PathVerdict}
_REASONS = {int(reason): reason.name for reason in reliability.NackReason}
_OPERATIONS = {int(op): op.name for op in endpoint.EndpointOp}


def _bth_fields() -> list[AnyField]:
    return [
        ByteEnumField("opcode", int(MrcOpcode.WRITE_ONLY), _OPCODES),
        BitField("migreq", 0, 1), BitField("solicited", 0, 1), BitField("padcount", 0, 2),
        BitField("version", 0, 4), XShortField("pkey", 0xFFFF), XByteField("resv8", 0),
        XBitField("dqpn", 0, 24), BitField("ackreq", 0, 1), BitField("resv1", 0, 1),
        BitField("rtx", 0, 1), BitField("ts", 0, 1), BitField("resv4", 0, 4),
        BitField("psn", 0, 24),
    ]  # fmt: skip


class _MrcBase(Packet):
    """What a whole BTH and a trimmed one have in common."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the first header of the packet's opcode."""
        headers = _headers_of(self)
        return headers[0] if headers else super().guess_payload_class(payload)


class MrcBTH(_MrcBase):
    """The BTH of MRC, and the ICRC at the packet's end."""

    name = "MRC BTH"
    fields_desc = [*_bth_fields(), FCSField("icrc", None, fmt="!I")]

    def post_build(self, head: bytes, payload: bytes) -> bytes:
        """Put the ICRC at the end, where none is given and there are headers to cover."""
        whole = head + payload
        if self.icrc is None and (before := _headers_before(self, len(whole))):
            covered = before + whole[: -ICRC.size]
            whole = whole[: -ICRC.size] + ICRC.pack(icrc(covered))
        return whole


class TrimmedMrcBTH(_MrcBase):
    """The BTH of an MRC packet that a switch has cut: with no ICRC at its end."""

    name = "MRC BTH, trimmed"
    fields_desc = _bth_fields()


def _headers_before(bth: Packet, size: int) -> bytes:
    """Return IP and UDP headers as they will be; nothing where there are none."""
    udp = bth.underlayer
    ip = None if udp is None else udp.underlayer
    if not isinstance(udp, UDP) or not isinstance(ip, (IP, IPv6)):
        return b""
    outer, inner = ip.copy(), udp.copy()
    outer.remove_payload()  # and with it what the payload says of the headers before
    inner.remove_payload()
    inner.sport, inner.dport = udp.sport, udp.dport
    inner.len = udp.len if udp.len is not None else size + 8
    inner.chksum = 0
    if isinstance(ip, IPv6):
        outer.nh, outer.plen = ip.nh, ip.plen if ip.plen is not None else size + 8
    else:
        outer.proto, outer.len = ip.proto, ip.len if ip.len is not None else size + 28
    return bytes(outer) + bytes(inner)


class METH(Extension):
    """MRC Extended Transport Header."""

    name = "METH"
    fields_desc = [ShortField("rqmsn", 0), ShortField("msn", 0)]


_STAMP = ("tx_timestamp", "tsr", "resv11", "ftype")


def _stamp() -> list[AnyField]:
    name, tsr, resv, ftype = _STAMP
    return [
        ShortField(name, 0), BitField(tsr, 0, 1), BitField(resv, 0, 11),
        BitField(ftype, eths.FTYPE, 4),
    ]  # fmt: skip


class TSETH(Extension):
    """Timestamp Extended Transport Header."""

    name = "TSETH"
    fields_desc = _stamp()


def _connection() -> list[AnyField]:
    return [XShortField("spdcid", 0), XShortField("dpdcid", 0)]


class SETH(Extension):
    """SACK Extended Transport Header, and the state of congestion control behind it."""

    name = "SETH"
    fields_desc = [
        BitField("type", 0, 4), BitField("next", 0, 5),
        BitEnumField("verdict", 0, 2, _VERDICTS), BitField("resv3", 0, 3),
        BitField("probe", 0, 1), BitField("resv1", 0, 1),
        SignedShortField("ack_psn_offset", 0), XIntField("entropy", 0), *_connection(),
        XByteField("resv8", 0), X3BytesField("cack_psn", 0),
        BitField("cc_type", 0, 4), BitField("cc_flags", 0, 4), ByteField("mpr", 0),
        SignedShortField("sack_offset", 0), XLongField("sack_bitmap", 0),
        ShortField("tx_timestamp", 0), BitField("resv_cc", 0, 1), BitField("ooo_count", 0, 15),
        BitField("restore_cwnd", 0, 1), BitField("rcv_cwnd_pen", 0, 7),
        BitField("rcvd_bytes", 0, 24),
    ]  # fmt: skip


class NETH(Extension):
    """NACK Extended Transport Header."""

    name = "NETH"
    fields_desc = [
        BitField("type", 0, 4), BitField("next", 0, 5), BitField("resv7", 0, 7),
        ByteEnumField("reason", 1, _REASONS), XByteField("vendor_info", 0),
        XIntField("entropy", 0), *_connection(), XByteField("resv8", 0),
        X3BytesField("nack_psn", 0), BitField("cc_type", 2, 4), BitField("cc_flags", 0, 4),
        XByteField("resv_cc", 0), ShortField("tx_timestamp", 0),
    ]  # fmt: skip


class PETH(Extension):
    """Probe Extended Transport Header."""

    name = "PETH"
    fields_desc = [
        BitField("type", 0, 4), BitField("next", 0, 5), BitField("resv7", 0, 7),
        XByteField("resv8", 0), XByteField("vendor_info", 0), XShortField("probe_id", 0),
        XShortField("resv16", 0), *_connection(), *_stamp(),
    ]  # fmt: skip


class ERTH(Extension):
    """Endpoint Request Transport Header."""

    name = "ERTH"
    fields_desc = [
        BitField("type", 0, 4), BitField("next", 0, 5), BitField("resv5", 0, 5),
        BitEnumField("op", 0, 2, _OPERATIONS), XByteField("resv8", 0),
        XByteField("vendor_info", 0), XIntField("port_status_mask", 0), XIntField("resv32", 0),
        *_stamp(),
    ]  # fmt: skip


class EETH(Extension):
    """Endpoint Response Transport Header."""

    name = "EETH"
    fields_desc = [
        BitField("type", 0, 4), BitField("next", 0, 5), BitField("resv3", 0, 3),
        BitEnumField("op", 0, 2, _OPERATIONS), BitField("resv2", 0, 2),
        XBitField("resv208", 0, 208), ShortField("tx_timestamp", 0), XBitField("resv48", 0, 48),
    ]  # fmt: skip


_LAYERS: dict[type, type[Packet]] = {
    eths.Meth: METH, eths.Tseth: TSETH, roce_eths.Reth: RETH, roce_eths.ImmDt: IMMDT,
    roce_eths.Aeth: AETH, reliability.Seth: SETH, reliability.Neth: NETH,
    reliability.Peth: PETH, endpoint.Erth: ERTH, endpoint.Eeth: EETH,
}  # fmt: skip


def _headers_of(bth: Packet) -> Sequence[type[Packet]]:
    if bth.opcode not in _OPCODES:
        return ()
    header = MrcBth(bth.opcode, 0, 0, ts=bool(bth.ts))
    return [_LAYERS[kind] for kind in headers_of(header)]


HEADERS_OF[MrcBTH] = HEADERS_OF[TrimmedMrcBTH] = _headers_of
CLAIMS.append((lambda opcode: opcode in _OPCODES, MrcBTH, TrimmedMrcBTH))
bind_top_down(UDP, MrcBTH, dport=PORTS[0])
bind_top_down(UDP, TrimmedMrcBTH, dport=PORTS[0])
bind_bottom_up(UDP, BTH, dport=PORTS[1])
for _opcode, _first in ((code, _headers_of(MrcBTH(opcode=code))[0]) for code in _OPCODES):
    if _first is not METH:  # building SETH behind a BTH makes the opcode that of a SACK
        bind_layers(MrcBTH, _first, opcode=_opcode)
