"""A whole host as one machine: its NIC ports, neighbour tables and workload. Pure."""
