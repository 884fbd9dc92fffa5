"""Scapy and our packets: layers for what follows a BTH, and another network namespace.

    from scapy.all import rdpcap
    from netem.scapy_layers import RETH

    rdpcap("lab.pcapng")[0][RETH].show()

Scapy brings BTH, CNP and the AETH of acknowledgements (`scapy.contrib.roce`). Importing this
module adds the other extension headers, in the order that the opcode asks for, from the same
table as our codecs. What is behind them is Raw, pad bytes included; the ICRC is a field of BTH.

For people at a prompt and for tests: nothing that carries traffic imports this.
"""

from scapy.config import conf
from scapy.contrib.roce import AETH, BTH
from scapy.fields import BitField, XBitField, XByteField, XIntField, XLongField
from scapy.packet import Packet, bind_layers, split_layers

from wire.roce import eths
from wire.roce.opcodes import OPCODES, Family, Opcode

__all__ = [
    "AETH", "BTH", "DETH", "FETH", "IETH", "IMMDT", "RDETH", "RETH", "XRCETH", "AtomicAckETH",
    "AtomicETH", "reload_interfaces",
]  # fmt: skip


class _Extension(Packet):
    """One of several headers behind a BTH."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the next header of the packet's opcode."""
        return _next_layer(self) or super().guess_payload_class(payload)


class RETH(_Extension):
    """RDMA Extended Transport Header."""

    name = "RETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), XIntField("dmalen", 0)]


class AtomicETH(_Extension):
    """Atomic Extended Transport Header."""

    name = "AtomicETH"
    fields_desc = [
        XLongField("va", 0), XIntField("rkey", 0), XLongField("swap_add", 0),
        XLongField("compare", 0),
    ]  # fmt: skip


class AtomicAckETH(_Extension):
    """Atomic Acknowledge Extended Transport Header."""

    name = "AtomicAckETH"
    fields_desc = [XLongField("original", 0)]


class DETH(_Extension):
    """Datagram Extended Transport Header."""

    name = "DETH"
    fields_desc = [XIntField("qkey", 0), XByteField("resv", 0), XBitField("srcqp", 0, 24)]


class RDETH(_Extension):
    """Reliable Datagram Extended Transport Header."""

    name = "RDETH"
    fields_desc = [XByteField("resv", 0), XBitField("eecnxt", 0, 24)]


class XRCETH(_Extension):
    """XRC Extended Transport Header."""

    name = "XRCETH"
    fields_desc = [XByteField("resv", 0), XBitField("xrcsrq", 0, 24)]


class IMMDT(_Extension):
    """Immediate Extended Transport Header."""

    name = "IMMDT"
    fields_desc = [XIntField("imm", 0)]


class IETH(_Extension):
    """Invalidate Extended Transport Header."""

    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class FETH(_Extension):
    """FLUSH Extended Transport Header."""

    name = "FETH"
    fields_desc = [BitField("resv", 0, 26), BitField("sel", 0, 2), BitField("plt", 0, 4)]


_LAYERS: dict[type, type[Packet]] = {
    eths.Reth: RETH, eths.AtomicEth: AtomicETH, eths.AtomicAckEth: AtomicAckETH,
    eths.Deth: DETH, eths.Rdeth: RDETH, eths.Xrceth: XRCETH, eths.ImmDt: IMMDT,
    eths.Ieth: IETH, eths.Feth: FETH, eths.Aeth: AETH,
}  # fmt: skip


def _next_layer(layer: Packet) -> type[Packet] | None:
    """Return what follows an extension header of a packet, by the packet's opcode."""
    depth, bth = 0, layer.underlayer
    while bth is not None and not isinstance(bth, BTH):
        depth, bth = depth + 1, bth.underlayer
    info = None if bth is None else OPCODES.get(bth.opcode)
    if info is None or depth + 1 >= len(info.headers):
        return None
    return _LAYERS[info.headers[depth + 1]]


def _after_aeth(layer: Packet, payload: bytes) -> type[Packet]:
    return _next_layer(layer) or Packet.guess_payload_class(layer, payload)


def _bind() -> None:
    # Scapy's own class: whoever looks for the AETH of an ACK finds what he always found.
    AETH.guess_payload_class = _after_aeth  # type: ignore[method-assign, assignment]
    split_layers(BTH, AETH, opcode=int(Opcode.RD_ACKNOWLEDGE))  # an RDETH comes first
    for info in OPCODES.values():
        if info.headers and info.family is not Family.CNP:
            bind_layers(BTH, _LAYERS[info.headers[0]], opcode=int(info.opcode))


_bind()


def reload_interfaces() -> None:
    """Let scapy look again at the interfaces and routes of the present network namespace.

    It reads them once, when it is imported. Call this after every change of namespace (setns,
    `netem.kernel.namespaces.inside`), before `send`, `sendp` or `sniff`.
    """
    conf.ifaces.reload()
    conf.route.resync()
    conf.route6.resync()
