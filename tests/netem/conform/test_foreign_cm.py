"""An address as a target, joined by the communication manager; there a node of our own verbs.

Everything happens in a sandbox: the node in a network namespace, the suite in another.
"""

import contextlib
import functools
import json
import socket

import pytest
import trio

from netem.cli import options
from netem.conform import by_cm
from netem.conform.box import boxed
from netem.conform.cm_words import PORT
from netem.conform.endpoint import StageError
from netem.conform.foreign_cm import open_by_cm
from netem.conform.node import _link
from netem.conform.notation import parse
from netem.conform.reach import NoTargetError, Whom
from netem.conform.report import INCONCLUSIVE, exit_code
from netem.conform.shown import Shown
from netem.conform.suite import built_in, choose, run
from netem.kernel.run import run as run_program
from netem.kernel.sandbox import Gate, fork_node
from netem.verbs import Access, RecvWr, VerbsError, open_device
from transports.clock import MS
from wire.roce.packet import UDP_PORT

ADDRESSES = {4: ("198.18.0.2", "198.18.0.1"), 6: ("fd00::2", "fd00::1")}
SENDS = ["roce/R7", "roce/R8", "roce/R9", "roce/R47.send", "roce/R20.send", "roce/R15"]


ALL = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC


async def server(address, receives=2, shows=0, takes=None):
    """Accept everybody, with receives posted before; show so many bytes of memory."""

    async def accept(request):
        qp = pd.create_qp(device.create_cq())
        memory = pd.register(8192, Access.LOCAL_WRITE)
        await qp.init(ALL if shows else Access.REMOTE_WRITE)
        for number in range(receives):
            qp.post_recv(RecvWr(number, (memory.sge(number * 4096, 4096),)))
        note = b""
        if shows:
            open_to_all = pd.register(shows, ALL | Access.LOCAL_WRITE)
            note = Shown(open_to_all.addr, open_to_all.r_key, shows).pack()
        with contextlib.suppress(VerbsError):  # who has no RTU to say is not waited for
            await request.accept(qp, private_data=note, responder_resources=takes)

    async with open_device(address, seed=1) as device, trio.open_nursery() as nursery:
        pd = device.alloc_pd()
        listener = device.cm.listen(PORT)
        while True:
            nursery.start_soon(accept, await listener.next())


async def refuser(address):
    async with open_device(address, seed=1) as device:
        listener = device.cm.listen(PORT)
        while True:
            (await listener.next()).reject(b"no")


async def elsewhere(address):
    async with open_device(address, seed=1) as device:
        device.cm.listen(PORT + 1)
        await trio.sleep_forever()


async def silent(_address):
    """Take everything and say nothing."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as taking:
        taking.bind(("::", UDP_PORT))
        await trio.sleep_forever()


async def babbler(_address):
    """Answer every datagram by what is no MAD."""
    sock = trio.socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    await sock.bind(("::", UDP_PORT))
    while True:
        _, peer = await sock.recvfrom(4096)
        await sock.sendto(b"no communication manager", (peer[0], UDP_PORT))


async def nobody(_address):
    await trio.sleep_forever()


def judged(serve, family, patterns, answer):
    """Be the first process of the sandbox: have a node, judge it, write what came out."""
    address, own = ADDRESSES[family]
    gate = Gate()
    pid = fork_node(functools.partial(trio.run, serve, address), name="node", gate=gate)
    _link(pid)
    nodad = ("nodad",) if family == 6 else ()
    length = 64 if family == 6 else 15
    run_program(("ip", "addr", "add", f"{own}/{length}", "dev", "s0", *nodad))
    gate.open()
    mine = isinstance(patterns, str)
    cases = [*parse(patterns, "own")] if mine else choose(built_in(), patterns)
    try:
        with open_by_cm(address, "s0", PORT) as target:
            results = [*run(cases, target)]
    except StageError as error:
        answer.write_text(json.dumps({"stage": str(error)}))
        return options.HOST_CANNOT
    answer.write_text(json.dumps({r.case.id: [r.verdict, r.why] for r in results}))
    return exit_code(results, strict=False, interrupted=False)


def results_of(serve, patterns, tmp_path, family=6, code=0):
    answer = tmp_path / "answer.json"
    assert boxed(functools.partial(judged, serve, family, patterns, answer)) == code
    return json.loads(answer.read_text())


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize("family", [4, 6])
def test_a_node_that_listens_is_judged_by_sends(tmp_path, family):
    told = results_of(server, [*SENDS, "roce/R37*", "roce/R1", "roce/Q1*"], tmp_path, family)
    assert told["roce/R47.send"] == ["pass", ""]  # a NAK, and a PSN that the REP has named
    assert told["roce/R37.send_middle"] == ["pass", ""]
    assert told["roce/R7"] == ["unsupported", UNTOLD]  # it was acknowledged, see below
    why = "WRITE_ONLY: its REP shows no memory"
    assert told["roce/R1"] == ["unsupported", why]
    assert told["roce/Q1.three"][1] == "nobody can be asked to do something there"
    assert told["roce/R15"][1] == "its receives are posted before: it is always ready"


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize("family", [4, 6])
def test_memory_that_is_shown_is_written_read_and_added_to(tmp_path, family):
    shows = functools.partial(server, shows=65536)
    told = results_of(shows, ["roce/R*", "roce/W*", "roce/Q1*"], tmp_path, family)
    verdicts = {name: verdict for name, (verdict, _) in told.items()}
    assert verdicts.pop("roce/Q11.seven") == "untested"  # a slow one
    assert set(verdicts.values()) == {"pass", "unsupported"}
    assert [(name, *told[name]) for name in ONE_SIDED if verdicts[name] != "pass"] == []
    assert told["roce/R22"][1] == "nobody can be asked to do something there"  # to fill it
    assert told["roce/R53"][1] == "SEND_ONLY_INV: CM does not tell what may be invalidated"
    assert told["roce/R40.write"][1] == "a REQ does not ask for access"
    without = {
        name: verdict for name, verdict in verdicts.items() if name.startswith("roce/R58")
    }
    assert set(without.values()) == {"pass"}, without  # none are agreed: the REQ asks for that


ONE_SIDED = (
    *("roce/R1", "roce/R6", "roce/R16", "roce/R24", "roce/R32", "roce/R33"),
    *("roce/R35", "roce/R41.write", "roce/R57", "roce/R59"),
)


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize(
    ("serve", "why"),
    [
        (functools.partial(server, shows=4096), "it shows 4096 bytes, the case is for 65536"),
        (
            functools.partial(server, shows=65536, takes=1),
            "it takes 1 READs and atomics at a time",
        ),
    ],
)
def test_memory_that_is_not_as_a_case_wants_is_unsupported_and_says_why(serve, why, tmp_path):
    told = results_of(serve, ["roce/R57"], tmp_path, code=INCONCLUSIVE)
    assert told["roce/R57"] == ["unsupported", why]


@pytest.mark.parametrize("size", [0, 3, 24, 196])
def test_private_data_without_the_letters_shows_nothing(size):
    assert Shown.of(bytes(size)) is None


def test_what_is_shown_is_what_was_packed():
    shown = Shown(0x1_2345_6789_ABCD, 0xDEAD_BEEF, 65536)
    assert Shown.of(shown.pack() + bytes(172)) == shown
    assert shown.pack()[:8].hex(" ") == "52 4d 45 4d de ad be ef"


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize("family", [4, 6])
def test_the_manager_itself_is_judged_by_what_it_answers(tmp_path, family):
    told = results_of(server, ["cm/*"], tmp_path, family)
    assert {name for name, (verdict, _) in told.items() if verdict == "pass"} == ANSWERED
    why = {name: why for name, (verdict, why) in told.items() if verdict == "unsupported"}
    assert why["cm/C11"] == "nobody can be asked what happened there"
    assert why["cm/C1.told"] == "this endpoint's application is not told ESTABLISHED"
    assert why["cm/C23"] == "whether a datagram service is there, nobody says"
    rest = set(told) - ANSWERED - set(why)
    assert rest == {"cm/C10", "cm/C20"}  # slow


ANSWERED = {
    *(f"cm/C{number}" for number in (1, 2, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 22)),
    *("cm/C3.0x10", "cm/C3.0x01", "cm/C4.1", "cm/C4.2", "cm/C23.unknown"),
}


UNTOLD = "this endpoint's application is not told completion"


@pytest.mark.slow
@pytest.mark.needs("netns")
def test_sends_are_judged_by_what_is_on_the_wire(tmp_path):
    told = results_of(server, OWN_CASES, tmp_path, code=1)
    assert told["roce/R9.own"] == ["pass", ""]
    verdict, why = told["roce/R20.own"]
    assert (verdict, why.split(" (")[0]) == ("fail", "came ACK with msn 0x1, wanted 0x2")


# The second one is wrong: who resends completes nothing twice.
OWN_CASES = """
case roce/R9.own A SEND of two packets
! recv length=2048
> SEND_FIRST psn=+0 size=1024
> SEND_LAST psn=+1 size=4 ask
< ACK psn=+1 msn=1

case roce/R20.own A SEND that is sent again
! recv length=8
> SEND_ONLY psn=+0 size=8 ask
< ACK psn=+0 msn=1
> SEND_ONLY psn=+0 size=8 ask
< ACK psn=+0 msn=2
"""


@pytest.mark.slow
@pytest.mark.needs("netns")
def test_without_receives_a_send_is_unsupported_and_says_why(tmp_path):
    told = results_of(
        functools.partial(server, receives=0), ["roce/R7"], tmp_path, code=INCONCLUSIVE
    )
    why = "it has no receive posted: it answers RNR"
    assert told["roce/R7"] == ["unsupported", why]


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize(
    ("serve", "says"),
    [
        (refuser, "rejected: CONSUMER_REJECT (28); bytes seen: "),
        (elsewhere, "rejected: INVALID_SERVICE_ID (8); nobody listens there; bytes seen: "),
        (silent, "no answer, asked "),
        (babbler, "no answer that could be read, asked "),
        (nobody, "ICMP says that nobody takes UDP port 4791 there, asked "),
    ],
)
def test_what_makes_no_connection_is_inconclusive_with_the_stage(
    serve, says, tmp_path, monkeypatch
):
    monkeypatch.setattr(by_cm, "LIMIT", 900 * MS)
    monkeypatch.setattr(by_cm, "_GRACE", 100 * MS)
    # IPv4, for the kernel there takes no UDP of IPv6 without a checksum, and says nothing.
    told = results_of(serve, ["roce/R37*", "cm/C2"], tmp_path, family=4, code=INCONCLUSIVE)
    assert len(told) > 3
    for verdict, why in told.values():
        assert verdict == "inconclusive"
        assert why.startswith(f"the REQ to port {PORT} of rdma_cm: {says}")
    if serve is babbler:
        assert b"no communication".hex(" ") in why


def test_what_cannot_be_meant_is_refused_with_what_can():
    Whom("192.0.2.2", "eth1", "cm").check()
    with pytest.raises(NoTargetError, match="ib_atomic_bw, cm"):
        Whom("192.0.2.2", "eth1", "dc").check()
    with pytest.raises(NoTargetError, match="1 to 65535"):
        Whom("192.0.2.2", "eth1", "cm", 70_000).check()
