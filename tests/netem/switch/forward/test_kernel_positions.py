"""Our switch and a kernel router take turns at each position of a path, by the same plan.

Each router is told by the plan what its SIDs, routes and paths are: ours by the pipeline's
forwarding in a node process, the kernel by the steps of `netem.kernel`. Whoever it is, every
link carries the same bytes.
"""

from functools import cache
from itertools import product

import pytest

from tests.netem.switch.forward.chain import A6, B4, B6, BLOCK, LAST_SID, ROUTERS, crossed
from tests.netem.switch.forward.rig import ip4, ip6, packed, udp
from transports.srv6.headend import h_encaps

pytestmark = [pytest.mark.needs("netns", "seg6"), pytest.mark.slow]

DATA = udp(50001, 4791, bytes(24))
INNER = ip6("fd0b::1", DATA, src=A6, hop_limit=33, flow_label=0x12345, traffic_class=0xB8)
INNER4 = ip4("198.18.1.1", DATA, src="198.18.0.1", ttl=33)
TO_B = "fc00:be::"


def along(*segments, inner=INNER, reduced=True):
    """A packet that end a has steered into a path."""
    return bytes(h_encaps(inner, packed(A6), [packed(s) for s in segments], reduced=reduced))


def usids(*csids):
    return f"{BLOCK}:{':'.join(csids)}" + "::" * (len(csids) < 6)


def at(n):
    """Packets for which router n is more than transit."""
    before = ROUTERS if n == 1 else n - 1  # another router, for ways to and fro
    un, ua, other = f"10{n}", f"e00{n}", f"10{before}"
    to_and_fro = (usids(un, other, un, other, un), usids(un, other, un, other, un, "b01"))
    return {
        "End": along(f"fc00:{n}e::", TO_B),
        "End, full list": along(f"fc00:{n}e::", TO_B, reduced=False),
        "End and End.X": along(f"fc00:{before}a::" if n > 1 else TO_B, f"fc00:{n}e::", TO_B),
        "End, PSP": along(f"fc00:{n}c::", TO_B),
        "End.X": along(f"fc00:{n}a::", TO_B),
        "End.DX6": along(f"fc00:{n}6::"),
        "End.DX6 at the end of an SRH": along(f"fc00:{before}e::", f"fc00:{n}6::"),
        "End.DX4": along(f"fc00:{n}4::", inner=INNER4),
        "End.DT6": along(f"fc00:{n}d::"),
        "uN": along(usids(un, "b01")),
        "uN, six uSIDs": along(to_and_fro[1]),
        "uN, two containers": along(usids(un), usids(other, un, "b01")),
        "uN, two containers, ten uSIDs": along(*to_and_fro[:1], usids(other, un, other, "b01")),
        "uA": along(usids(*(f"e00{m}" for m in range(1, n + 1)), "b01")),
        "uN and uA": along(usids(un, ua, "b01")),
        "uN and uA, two containers": along(usids(other, un, ua), usids("b01")),
        "uDT6": along(usids(f"d0{n}")),
        "H.Encaps": ip6(f"fd0b:{n}1::1", DATA, src=A6, hop_limit=33, flow_label=0x54321),
        "H.Encaps.Red": ip6(f"fd0b:{n}2::1", DATA, src=A6, traffic_class=0xBA),
        "H.Encaps.Red, one container": ip6(f"fd0b:{n}3::1", DATA, src=A6),
        "H.Encaps, one container": ip6(f"fd0b:{n}4::1", DATA, src=A6),
        "H.Encaps.Red, two containers": ip6(f"fd0b:{n}5::1", DATA, src=A6),
        "H.Encaps.Red, IPv4": ip4(f"198.18.1{n}.1", DATA, src="198.18.0.1", ttl=33),
    }


PACKETS = {
    **{f"{what} at r{n}": packet for n in range(1, 4) for what, packet in at(n).items()},
    "End, End.X, End.DX6": along("fc00:1e::", "fc00:2a::", "fc00:36::"),
    "uN, uN, uN": along(usids("101", "102", "103", "b01")),
    "uN, uA, uN": along(usids("101", "102", "e002", "103", "b01")),
    "transit": along(LAST_SID),
    "routed": ip6(B6, DATA, src=A6),
    "routed, IPv4": ip4(B4, DATA, src="198.18.0.1"),
}
ALL = tuple(product(("switch", "linux"), repeat=ROUTERS))
KERNEL = ("linux",) * ROUTERS


@cache
def heard(kinds):
    return crossed(kinds, PACKETS)


@pytest.mark.parametrize("kinds", [k for k in ALL if k != KERNEL], ids=" ".join)
def test_every_link_carries_what_it_carries_between_kernels(kinds):
    """Outer and inner headers, SRH and MACs: whole frames, for every packet on every link.

    And every packet arrives, or `heard` fails.
    """
    assert heard(kinds) == heard(KERNEL)


@pytest.mark.needs("userns")
def test_without_rights_on_the_host_it_is_the_same():
    assert crossed(KERNEL, PACKETS, user_namespace=True) == heard(KERNEL)
