"""What follows a BTH of RoCE v2, in the order that its opcode asks for."""

from collections.abc import Callable, Sequence

from scapy.contrib.roce import AETH, BTH
from scapy.fields import BitField, XBitField, XByteField, XIntField, XLongField
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers, split_layers

from wire.roce import eths
from wire.roce.opcodes import OPCODES, Family, Opcode


class Extension(Packet):
    """One of several headers behind a BTH."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the next header of the packet's opcode."""
        return _next_layer(self) or super().guess_payload_class(payload)


class RETH(Extension):
    """RDMA Extended Transport Header."""

    name = "RETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), XIntField("dmalen", 0)]


class AtomicETH(Extension):
    """Atomic Extended Transport Header."""

    name = "AtomicETH"
    fields_desc = [
        XLongField("va", 0), XIntField("rkey", 0), XLongField("swap_add", 0),
        XLongField("compare", 0),
    ]  # fmt: skip


class AtomicAckETH(Extension):
    """Atomic Acknowledge Extended Transport Header."""

    name = "AtomicAckETH"
    fields_desc = [XLongField("original", 0)]


class DETH(Extension):
    """Datagram Extended Transport Header."""

    name = "DETH"
    fields_desc = [XIntField("qkey", 0), XByteField("resv", 0), XBitField("srcqp", 0, 24)]


class RDETH(Extension):
    """Reliable Datagram Extended Transport Header."""

    name = "RDETH"
    fields_desc = [XByteField("resv", 0), XBitField("eecnxt", 0, 24)]


class XRCETH(Extension):
    """XRC Extended Transport Header."""

    name = "XRCETH"
    fields_desc = [XByteField("resv", 0), XBitField("xrcsrq", 0, 24)]


class IMMDT(Extension):
    """Immediate Extended Transport Header."""

    name = "IMMDT"
    fields_desc = [XIntField("imm", 0)]


class IETH(Extension):
    """Invalidate Extended Transport Header."""

    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class FETH(Extension):
    """FLUSH Extended Transport Header."""

    name = "FETH"
    fields_desc = [BitField("resv", 0, 26), BitField("sel", 0, 2), BitField("plt", 0, 4)]


_LAYERS: dict[type, type[Packet]] = {
    eths.Reth: RETH, eths.AtomicEth: AtomicETH, eths.AtomicAckEth: AtomicAckETH,
    eths.Deth: DETH, eths.Rdeth: RDETH, eths.Xrceth: XRCETH, eths.ImmDt: IMMDT,
    eths.Ieth: IETH, eths.Feth: FETH, eths.Aeth: AETH,
}  # fmt: skip


class TrimmedBTH(Packet):
    """The BTH of a packet that a switch has cut: with no ICRC at its end."""

    name = "BTH, trimmed"
    fields_desc = [field for field in BTH.fields_desc if field.name != "icrc"]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the first header of the packet's opcode."""
        headers = _headers_of(self)
        return headers[0] if headers else super().guess_payload_class(payload)


# What headers stand behind a base header, by its class; other modules have more
HEADERS_OF: dict[type[Packet], Callable[[Packet], Sequence[type[Packet]]]] = {}


def _headers_of(bth: Packet) -> Sequence[type[Packet]]:
    info = OPCODES.get(bth.opcode)
    return () if info is None else [_LAYERS[header] for header in info.headers]


HEADERS_OF[BTH] = HEADERS_OF[TrimmedBTH] = _headers_of


def _next_layer(layer: Packet) -> type[Packet] | None:
    """Return what follows an extension header of a packet, by the packet's opcode."""
    depth, base = 0, layer.underlayer
    while base is not None and type(base) not in HEADERS_OF:
        depth, base = depth + 1, base.underlayer
    if base is None:
        return None
    headers = HEADERS_OF[type(base)](base)
    return headers[depth + 1] if depth + 1 < len(headers) else None


def _after_aeth(layer: Packet, payload: bytes) -> type[Packet]:
    return _next_layer(layer) or Packet.guess_payload_class(layer, payload)


def _bind() -> None:
    # Scapy's own class: whoever looks for the AETH of an ACK finds what he always found.
    AETH.guess_payload_class = _after_aeth  # type: ignore[method-assign, assignment]
    split_layers(BTH, AETH, opcode=int(Opcode.RD_ACKNOWLEDGE))  # an RDETH comes first
    for info in OPCODES.values():
        if info.headers and info.family is not Family.CNP:
            bind_layers(BTH, _LAYERS[info.headers[0]], opcode=int(info.opcode))


def _by_bytes(
    _: type[Packet], data: bytes | None = None, /, *__: object, **options: object
) -> type[Packet]:
    """Return the class for what lies behind a UDP header: of MRC, or trimmed, or neither."""
    if not data:
        return BTH
    cut = is_cut(data, options.get("_underlayer"))
    for claims, whole, trimmed in CLAIMS:
        if claims(data[0]):
            return trimmed if cut else whole
    return TrimmedBTH if cut else BTH


def is_cut(data: bytes, udp: object) -> bool:
    """Say whether a UDP header promises more than has come."""
    return isinstance(udp, UDP) and udp.len is not None and udp.len - 8 > len(data)


# Of other base headers on the same port: which opcodes, whole, trimmed
CLAIMS: list[tuple[Callable[[int], bool], type[Packet], type[Packet]]] = []

_bind()
BTH.dispatch_hook = classmethod(_by_bytes)  # type: ignore[attr-defined]  # scapy looks for it
