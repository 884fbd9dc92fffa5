"""Switches: the machine, what forwards in it, and the NIC of a host that obeys PFC."""
