"""Hosts of a kernel, two routers between them: a kernel's or ours, at each place.

    a --- r1 --- r2 --- b        inner addresses fd0a::N and fd0b::N, one N for each path

A datagram of a socket on `a` is encapsulated by the kernel there, passes both routers, is
decapsulated by the kernel of `b`, read from a socket, and answered the same way back. Whoever
the routers are, every link carries the same bytes, and the same as between kernels only.
"""

from dataclasses import dataclass

import pytest

from tests.netem.srv6.rig import IPV6, End, Network, Router, kernel_route, wait
from tests.sandboxed import in_sandbox
from tests.transports.srv6.packets import BLOCK, a6, ip6, sid, text6
from transports.srv6.endpoint import process
from transports.srv6.headend import Policy, containers, encapsulate
from transports.srv6.outcome import Adjacency, Decapsulated
from transports.srv6.sids import Behaviour, SidTable, ua, udt, un
from wire.udp import Udp, UdpChecksum, checksum, verify

pytestmark = [pytest.mark.needs("netns", "seg6"), pytest.mark.slow]

A_END, R1_DOWN = End("a", "l0", 1, "fd00::a"), End("r1", "l0", 2, "fd00::1")
R1_UP, R2_DOWN = End("r1", "l1", 3, "fd00:1::1"), End("r2", "l1", 4, "fd00:1::2")
R2_UP, B_END = End("r2", "l2", 5, "fd00:2::2"), End("b", "l2", 6, "fd00:2::b")
CABLES = [(A_END, R1_DOWN), (R1_UP, R2_DOWN), (R2_UP, B_END)]
QUESTION, ANSWER = b"SRv6-test-00....", b"and the answer.."
PORT, PEER_PORT = 50001, 4791


@dataclass(frozen=True)
class Path:
    """Segments there and back, and the mode of the kernels that encapsulate."""

    mode: str
    there: tuple[bytes, ...]
    back: tuple[bytes, ...]

    def route(self, prefix, device, *, is_back=False):
        segments = ",".join(map(text6, self.back if is_back else self.there))
        return f"route add {prefix} encap seg6 mode {self.mode} segs {segments} dev {device}"


def usids(mode, there, back):
    block = BLOCK.network_address.packed
    return Path(mode, containers(block, there), containers(block, back))


def classic(mode, there, back):
    return Path(mode, tuple(map(a6, there)), tuple(map(a6, back)))


PATHS = {
    "one container": usids("encap.red", [0x101, 0x201, 0xB01], [0x201, 0x101, 0xA01]),
    "one container and an SRH": usids("encap", [0x101, 0x201, 0xB01], [0x201, 0x101, 0xA01]),
    "one full container": usids(
        "encap.red",
        [0x101, 0x201, 0x101, 0x201, 0xF002, 0xB01],
        [0x201, 0x101, 0x201, 0x101, 0xF101, 0xA01],
    ),
    "six hops and two containers": usids(
        "encap.red", [0x101, 0x201] * 3 + [0xB01], [0x201, 0x101] * 3 + [0xA01]
    ),
    "adjacencies": usids("encap.red", [0xF001, 0xF002, 0xB01], [0xF102, 0xF101, 0xA01]),
    "node and adjacency at once": usids(
        "encap.red",
        [0x101, 0xF001, 0x201, 0xF002, 0xB01],
        [0x201, 0xF102, 0x101, 0xF101, 0xA01],
    ),
    "H.Encaps": classic(
        "encap",
        ["fc00:1::e", "fc00:2::e", "fc00:b::d6"],
        ["fc00:2::e", "fc00:1::e", "fc00:a::d6"],
    ),
    "H.Encaps.Red": classic(
        "encap.red",
        ["fc00:1::e", "fc00:2::e", "fc00:b::d6"],
        ["fc00:2::e", "fc00:1::e", "fc00:a::d6"],
    ),
    "End.X": classic(
        "encap.red",
        ["fc00:1::a", "fc00:2::a", "fc00:b::d6"],
        ["fc00:2::b", "fc00:1::b", "fc00:a::d6"],
    ),
    "the last router decapsulates": classic(
        "encap.red", ["fc00:1::e", "fc00:2::d6"], ["fc00:2::e", "fc00:1::d6"]
    ),
}
KERNELS_ONLY = ()
PLACES = {"ours first": ("r1",), "ours last": ("r2",), "ours both": ("r1", "r2")}


def router_sids(number, down, up):
    """Return the SIDs of r1 or r2; `down` and `up` are the ends that its ports face."""
    node = number << 8 | 1
    below = Adjacency(f"l{number - 1}", a6(down.address))
    above = Adjacency(f"l{number}", a6(up.address))
    last = above if number == 2 else below
    return [
        un(BLOCK, node),
        *(
            ua(BLOCK, csid + number, way, node=at)
            for csid, way in ((0xF000, above), (0xF100, below))
            for at in (None, node)
        ),
        sid(f"fc00:{number}::e"),
        sid(f"fc00:{number}::a", Behaviour.END_X, adjacencies=(above,)),
        sid(f"fc00:{number}::b", Behaviour.END_X, adjacencies=(below,)),
        sid(f"fc00:{number}::d6", Behaviour.END_DX6, adjacencies=(last,)),
    ]


def router_routes(number):
    """Return the port for everything that is no SID of the router."""
    down, up = f"l{number - 1}", f"l{number}"
    to_other = up if number == 1 else down
    other = 3 - number
    return {
        f"fcbb:bb00:{other}01::/48": to_other,
        f"fc00:{other}::/64": to_other,
        "fcbb:bb00:b01::/48": up,
        "fc00:b::/64": up,
        "fcbb:bb00:a01::/48": down,
        "fc00:a::/64": down,
    }


ROUTERS = {
    "r1": (1, (R1_DOWN, A_END), (R1_UP, R2_DOWN)),
    "r2": (2, (R2_DOWN, R1_UP), (R2_UP, B_END)),
}


def lay(network, ours):
    """Lay the cables and configure all nodes; return our routers by name."""
    for one, other in CABLES:
        network.cable(one, other)
    routers = {}
    for name, (number, down, up) in ROUTERS.items():
        sids = router_sids(number, down[1], up[1])
        routes = router_routes(number)
        if name in ours:
            routers[name] = Router(network, name, sids, (down, up), routes)
            continue
        gateways = {here.interface: there.address for here, there in (down, up)}
        network.ip(
            name,
            *(kernel_route(one, f"l{number - 1}") for one in sids),
            *(f"route add {to} via {gateways[port]} dev {port}" for to, port in routes.items()),
        )
    for letter, gateway, end in (("a", "fd00::1", A_END), ("b", "fd00:2::2", B_END)):
        if letter in ours:
            continue
        is_back = letter == "b"
        peer = "a" if is_back else "b"
        last = 0xB01 if is_back else 0xA01
        network.ip(
            letter,
            f"route add {BLOCK} via {gateway} dev {end.interface}",
            f"route add fc00::/16 via {gateway} dev {end.interface}",
            f"sr tunsrc set {end.address}",
            *(
                kernel_route(one, end.interface)
                for one in (
                    udt(BLOCK, last, 255, behaviour=Behaviour.END_DT6),
                    sid(f"fc00:{letter}::d6", Behaviour.END_DT6, table=255),
                )
            ),
        )
        for number, path in enumerate(PATHS.values(), 1):
            network.ip(
                letter,
                f"addr add fd0{letter}::{number:x}/128 dev lo",
                path.route(f"fd0{peer}::{number:x}/128", end.interface, is_back=is_back),
            )
    return routers


def pump(routers, until):
    """Let our routers work until a socket has something to read."""
    ports = [port for router in routers.values() for port in router.ports.values()]
    while until not in wait([until, *ports]):
        for router in routers.values():
            router.turn()


def conversations(ours):
    """Return, for each path, what was said and what every end sent for it."""
    with Network(*sorted({"a", "r1", "r2", "b"} - set(ours)), ours=ours) as network:
        routers = lay(network, ours)
        told = {}
        for number, name in enumerate(PATHS, 1):
            asker = network.udp("a", f"fd0a::{number:x}", PORT)
            answerer = network.udp("b", f"fd0b::{number:x}", PEER_PORT)
            network.heard()
            asker.sendto(QUESTION, (f"fd0b::{number:x}", PEER_PORT))
            pump(routers, answerer)
            question, source = answerer.recvfrom(100)
            answerer.sendto(ANSWER, source)
            pump(routers, asker)
            answer, _ = asker.recvfrom(100)
            told[name] = (question, answer, network.heard())
        return told


@pytest.fixture(scope="module")
def kernels():
    return in_sandbox(conversations, KERNELS_ONLY)


@pytest.fixture(scope="module", params=PLACES.values(), ids=PLACES)
def mixed(request):
    return in_sandbox(conversations, request.param)


@pytest.mark.parametrize("path", PATHS)
def test_a_datagram_crosses_and_its_answer_comes_back(mixed, path):
    question, answer, _ = mixed[path]
    assert (question, answer) == (QUESTION, ANSWER)


@pytest.mark.parametrize("path", PATHS)
def test_every_link_carries_what_it_carries_between_kernels(mixed, kernels, path):
    _, _, heard = mixed[path]
    _, _, expected = kernels[path]
    assert heard == expected
    assert all(heard.values())
    assert len(heard) == 6


def test_six_hops_are_six_hops(kernels):
    """The path goes to and fro between the routers, so their cable carries most of it."""
    _, _, heard = kernels["six hops and two containers"]
    assert len(heard["r1", "l1"]) == 3 + 2
    assert len(heard["r2", "l1"]) == 2 + 3


@dataclass(frozen=True)
class Exchange:
    """What became of a datagram from our own host to a kernel's, and of the answer."""

    sent: bytes  # the frame that our host sent
    question: bytes
    answer: bytes  # the inner packet, as we took it out
    source: bytes
    target: bytes


def from_our_host():
    """Be host `a`, with kernels for all the rest: encapsulate, and decapsulate the answer."""
    with Network("r1", "r2", "b", ours=("a",)) as network:
        lay(network, ("a",))
        port = network.ports["a", "l0"]
        mine = SidTable(
            [udt(BLOCK, 0xA01, 255), sid("fc00:a::d6", Behaviour.END_DT6, table=255)]
        )
        exchanges = {}
        for number, (name, path) in enumerate(PATHS.items(), 1):
            source, target = a6(f"fd0a::{number:x}"), a6(f"fd0b::{number:x}")
            answerer = network.udp("b", text6(target), PEER_PORT)
            inner = ip6(target, datagram(source, target), 17, source=source)
            policy = Policy(a6(A_END.address), path.there, reduced=path.mode == "encap.red")
            packet = encapsulate(inner, policy).packet
            sent = R1_DOWN.mac + A_END.mac + IPV6 + packet
            port.send(sent)
            wait([answerer])
            question, back_to = answerer.recvfrom(100)
            answerer.sendto(ANSWER, back_to)
            [frame] = received(port)
            outcome = process(frame[14:], mine)
            inner = outcome.packet if isinstance(outcome, Decapsulated) else frame[14:]
            exchanges[name] = Exchange(sent, question, bytes(inner), source, target)
        return exchanges


def received(port):
    """Return the frames that came, groups left out; there will be one at least."""
    frames = []
    while not frames:
        wait([port])
        frames = [bytes(frame) for frame in port.receive() if not frame[0] & 1]
    return frames


def datagram(source, target):
    raw = bytearray(8) + QUESTION
    Udp(PORT, PEER_PORT, len(raw)).pack_into(raw)
    raw[6:8] = checksum(source, target, raw).to_bytes(2, "big")
    return bytes(raw)


@pytest.fixture(scope="module")
def our_host():
    return in_sandbox(from_our_host)


@pytest.mark.parametrize("path", PATHS)
def test_our_host_talks_to_a_kernels_through_kernel_routers(our_host, path):
    exchange = our_host[path]
    assert exchange.question == QUESTION
    inner = exchange.answer
    assert (inner[8:24], inner[24:40]) == (exchange.target, exchange.source)
    assert inner[48:] == ANSWER
    assert verify(inner[8:24], inner[24:40], inner[40:]) is UdpChecksum.GOOD


@pytest.mark.parametrize("path", PATHS)
def test_our_host_sends_what_a_kernel_host_sends(our_host, kernels, path):
    _, _, heard = kernels[path]
    assert our_host[path].sent.hex() == heard["a", "l0"][0]
