"""The three forms in which every built-in lab is run: what is added to the command line."""

FORMS = {
    "frame-ipv6": (),
    "frame-ipv4": ("--set", "defaults.host.family=ipv4"),
    "datagram": ("--set", "defaults.host.mode=datagram"),
}
