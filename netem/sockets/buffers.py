"""Socket buffers: asking for room, and knowing how much one got."""

import contextlib
import socket

SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33

# What a packet costs beside its own bytes: head room and struct skb_shared_info in the same
# piece of memory, struct sk_buff in another.
_BESIDE_BYTES = 448
_SK_BUFF = 256


def ask_for_buffers(sock: socket.socket, size: int) -> None:
    """Ask for `size` bytes of buffer each way, beyond the host's limit where we may.

    Only the host's administrator may pass `net.core.rmem_max`; root of a user namespace is
    not. What one got, `receive_buffer` tells.
    """
    for force, ask in (
        (SO_RCVBUFFORCE, socket.SO_RCVBUF),
        (SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, size)
        except PermissionError:
            with contextlib.suppress(PermissionError):
                sock.setsockopt(socket.SOL_SOCKET, ask, size)


def receive_buffer(sock: socket.socket) -> int:
    """Return the receive buffer, in bytes of kernel memory: see `packets_held`."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def packets_held(buffer: int, packet_size: int) -> int:
    """Return how many packets of a size surely fit a buffer that `receive_buffer` reported.

    The kernel takes memory for packets in powers of two.
    """
    memory = 1 << (packet_size + _BESIDE_BYTES - 1).bit_length()
    return buffer // (memory + _SK_BUFF)
