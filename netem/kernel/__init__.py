"""Facilities of the host kernel: sandbox, namespaces, links, capabilities."""
