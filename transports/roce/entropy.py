"""The UDP source port: what spreads flows over equal paths. Annex A17.9.

From 0xC000 up, and the same for all packets of a queue pair, so that a path keeps their order.
The rules are those of Linux (`rdma_flow_label_to_udp_sport` and rxe), so that both ends of a
connection choose the same port. Each must work with any.
"""

_FIRST = 0xC000
_GOLDEN = 0x61C88647  # 2^32 by the golden ratio: neighbours land far apart


def connection_port(flow_label: int, one: int, other: int) -> int:
    """Return the port of a connection: its path's flow label, folded into 14 bits.

    Where that is 0, the product of both queue pair numbers stands for it.
    """
    if not flow_label:
        product = one * other
        flow_label = (product ^ product >> 20 ^ product >> 40) & 0xFFFFF
    return _FIRST | (flow_label ^ flow_label >> 14) & 0x3FFF


def datagram_port(qp_num: int) -> int:
    """Return the port of what a UD queue pair sends, whoever it goes to."""
    return _FIRST + (qp_num * _GOLDEN >> 18 & 0x3FFF)
