"""The overlay: WireGuard, as a machine. WireGuard paper (J. Donenfeld), and Noise, revision 34.

`tunnel.Tunnel` is one interface with its peers; all else here is a part of it, or text around
it (`configuration`, `uapi`). Where the paper leaves a choice, the Linux module is followed.
"""
