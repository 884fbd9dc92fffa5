"""In the guest: what discipline an interface has, by the product's own reading of netlink."""

from netem.kernel import qdisc


def root(interface):
    """Return its fields, the options in hexadecimal; None where there is no discipline."""
    found = qdisc.root(interface)
    return None if found is None else found._asdict() | {"options": found.options.hex()}
