"""What to call an address: the node that has it, else the address itself."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from netem.topology.plan import Plan


def text_of(address: bytes) -> str:
    """Return an IPv4, IPv6 or MAC address as it is usually written."""
    if len(address) in {4, 16}:
        return str(ip_address(address))
    return ":".join(f"{byte:02x}" for byte in address)


class Names:
    """Addresses, as bytes, to names of nodes."""

    def __init__(self, known: Mapping[bytes, str] | None = None) -> None:
        self._known = dict(known or {})

    @classmethod
    def of_plan(cls, plan: Plan) -> "Names":
        """Return the names of all nodes of a plan, under each of their addresses."""
        return cls(
            {
                address: node.name
                for node in plan.nodes
                for port in node.ports
                for address in _addresses(port.mac, port.ipv6, port.ipv4)
            }
        )

    def learn(self, address: bytes, name: str) -> None:
        """Take `name` for an address that has none yet."""
        if address and name:
            self._known.setdefault(address, name)

    def __call__(self, address: bytes) -> str:
        return self._known.get(address) or text_of(address)


def _addresses(mac: str, *ips: str | None) -> Iterable[bytes]:
    yield bytes.fromhex(mac.replace(":", ""))
    yield from (ip_address(ip).packed for ip in ips if ip)
