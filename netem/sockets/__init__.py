"""Packet, UDP and TAP sockets and the precise timer, one facility a file."""
