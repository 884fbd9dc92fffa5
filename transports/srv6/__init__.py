"""SRv6: behaviours of endpoints and headends as functions from packet to packet.

`endpoint.process` is what a node does with a packet to one of its SIDs, `headend` what it does
to steer a packet into a path, `sids` the table between destination and behaviour, `outcome`
what may come out. README.md says what is there and what is not.
"""
