"""Forwarding in the switch: bridging, routing, SRv6, path choice. README.md says how.

`router.forwarder_of` makes the part of a switch behind the seam of `netem.switch.forwarder`.
"""
