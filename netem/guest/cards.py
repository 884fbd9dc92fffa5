"""Network cards of a guest that put on a TAP what a wire would carry.

Every offload is off: checksums are finished and packets whole, so an ICRC is over what is sent.
A card takes frames of more than 1500 bytes because `mrg_rxbuf` is on; with it off, QEMU's
receive path drops them without a word.
"""

from collections.abc import Sequence

_OFF = (
    *("csum", "gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
    *("guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"),
    "ctrl_vlan",  # a filter of VLANs, which takes priority tags away from a guest without 8021q
)
_SETTINGS = ",".join(("mrg_rxbuf=on", "romfile=", *(f"{name}=off" for name in _OFF)))

MODULES = ("virtio_net",)


def tap_card(tap: str, mac: str) -> Sequence[str]:
    """Return what QEMU is told of a card at a TAP of the namespace it is started in."""
    return (
        *("-netdev", f"tap,id={tap},ifname={tap},script=no,downscript=no,vnet_hdr=off"),
        *("-device", f"virtio-net-pci,netdev={tap},mac={mac},{_SETTINGS}"),
    )
