"""Machines: protocols without sockets, clocks or randomness of their own.

Every transport is driven by the five members of `transports.machine.Machine`.
"""
