"""Two ends of a link in one namespace, for sockets to be tried on."""

from netem.kernel.links import await_running
from netem.kernel.namespaces import control_socket
from netem.kernel.offloads import BYTE_ACCURATE, Offloads
from netem.kernel.run import start_batch


def veth(mtu=1500, settings=BYTE_ACCURATE):
    """Make `va` and `vb`, up and deaf to IPv6, so that only what is tried is on them."""
    start_batch("ip", [f"link add va mtu {mtu} type veth peer name vb mtu {mtu}"]).result()
    with control_socket() as control:
        for name in ("va", "vb"):
            Offloads(control).write(name, settings)
        lines = [f"link set {name} addrgenmode none arp off up" for name in ("va", "vb")]
        start_batch("ip", lines).result()
        for name in ("va", "vb"):
            await_running(control, name)
