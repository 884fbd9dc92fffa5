"""The world: topologies, namespaces, sockets, impairment, captures, and the command line."""
