"""The text of /etc/hosts for a lab."""

from netem.topology.plan import Plan


def hosts_text(plan: Plan) -> str:
    """Return a line for every node's every address, below its name, and for the loopback's."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for node in plan.nodes:
        own = [(port.ipv6, port.ipv4) for port in node.ports]
        if node.switch is not None:
            own.append((node.switch.address, node.switch.address_v4))
        lines.extend(f"{ip} {node.name}" for pair in own for ip in pair if ip)
        if (tunnel := node.tunnel) is not None:
            name = f"{node.name}.{tunnel.interface}"
            lines.extend(f"{ip} {name}" for ip in tunnel.addresses)
    return "\n".join(lines) + "\n"
