"""The tunnel node: a WireGuard interface on the host, by the machine of transports.overlay."""
