"""An address as a target: joined by perftest's exchange, here with a server of our own verbs.

The server is `ib_write_bw` up to where its test begins, again and again, in another network
namespace. Everything happens in a sandbox.
"""

import functools
import json
import socket

import pytest
import trio

from netem.conform.box import boxed
from netem.conform.endpoint import StageError
from netem.conform.foreign import open_foreign
from netem.conform.node import _link
from netem.conform.suite import built_in, choose, run
from netem.kernel.run import run as run_program
from netem.kernel.sandbox import Gate, fork_node
from netem.verbs import Access, VerbsError, open_device
from netem.verbs.tcp import listen_once, speak
from transports.roce.exchange.keys import Keys
from transports.roce.exchange.perftest import PORT, KeysKnown, Perftest, Plan, RunNow, Verb
from wire.roce.gid import gid_of

OWN, PEER = "fd00::2", "fd00::1"
PATTERNS = ["roce/R1", "roce/R3", "roce/R17", "roce/R37", "roce/R41.write", "roce/Q1"]


async def ib_write_bw():
    async with open_device(OWN, seed=1) as device:
        pd = device.alloc_pd()
        while True:
            memory = pd.register(65536, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
            qp = pd.create_qp(device.create_cq())
            await qp.init(Access.REMOTE_WRITE)
            keys = Keys(
                qp.qp_num, 5, gid_of(device.local_ip(OWN)), 1, memory.r_key, memory.addr
            )
            dialogue = Perftest(Plan(Verb.WRITE), (keys,), is_client=False)
            async with await listen_once(device, PORT) as stream:
                try:
                    async for event in speak(dialogue, stream):
                        if isinstance(event, KeysKnown):
                            [theirs] = event.keys
                            ah = await device.create_ah(PEER)
                            await qp.connect(
                                ah, theirs.qpn, sq_psn=5, rq_psn=theirs.psn,
                                path_mtu=event.path_mtu, max_rd_atomic=1,
                            )  # fmt: skip
                            dialogue.proceed()
                        elif isinstance(event, RunNow):
                            await stream.receive_some()
                except VerbsError:
                    continue


def rubbish():
    with socket.create_server(("::", PORT), family=socket.AF_INET6) as listener:
        while True:
            with listener.accept()[0] as stream:
                stream.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")


def silence():
    with socket.create_server(("::", PORT), family=socket.AF_INET6) as listener:
        kept = []
        while True:
            kept.append(listener.accept())


def judged(serve, patterns, answer):
    """Be the first process of the sandbox: have a server, judge it, write what came out."""
    gate = Gate()
    pid = fork_node(serve, name="server", gate=gate)
    _link(pid)
    run_program(("ip", "addr", "add", f"{PEER}/64", "dev", "s0", "nodad"))
    gate.open()
    cases = choose(built_in(), patterns)
    try:
        with open_foreign(OWN, "s0", "ib_write_bw", PORT) as target:
            told = {r.case.id: [r.verdict, r.why] for r in run(cases, target)}
    except StageError as error:
        told = {"stage": str(error)}
    answer.write_text(json.dumps(told))
    return 0


def results_of(serve, patterns, tmp_path):
    answer = tmp_path / "answer.json"
    assert boxed(functools.partial(judged, serve, patterns, answer)) == 0
    return json.loads(answer.read_text())


@pytest.mark.slow
@pytest.mark.needs("netns")
def test_a_server_of_perftest_is_judged_by_what_it_takes(tmp_path):
    told = results_of(functools.partial(trio.run, ib_write_bw), PATTERNS, tmp_path)
    verdicts = {name: verdict for name, (verdict, _) in told.items()}
    assert verdicts.pop("roce/R3") == "pass"
    assert verdicts.pop("roce/R37.write_middle") == "unsupported"  # it posts a receive first
    assert verdicts["roce/R17"] == "pass"
    assert verdicts["roce/R41.write"] == "pass"
    why = "ib_write_bw has a queue pair without read"
    assert told["roce/R1"] == ["unsupported", why]  # it looks at what was written by a READ
    assert told["roce/Q1.three"][1] == "nobody can be asked to do something there"


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize(
    ("serve", "says"),
    [
        (rubbish, "perftest's exchange: b'SSH-2.0-OpenSSH_' is no version of perftest;"),
        (silence, "perftest's exchange: timed out"),
    ],
)
def test_what_is_no_perftest_is_inconclusive_with_the_bytes_seen(
    serve, says, tmp_path, monkeypatch
):
    monkeypatch.setattr("netem.conform.foreign.LIMIT_S", 0.5)
    told = results_of(serve, ["roce/R3"], tmp_path)
    verdict, why = told["roce/R3"]
    assert verdict == "inconclusive"
    assert why.startswith(says)


@pytest.mark.slow
@pytest.mark.needs("netns")
def test_nobody_listening_is_inconclusive_and_names_the_port(tmp_path, monkeypatch):
    monkeypatch.setattr("netem.conform.foreign.LIMIT_S", 0.2)
    told = results_of(nobody, ["roce/R3"], tmp_path)
    assert told["roce/R3"][0] == "inconclusive"
    assert told["roce/R3"][1].startswith("connecting to TCP port 18515 of fd00::2: ")


def nobody():
    trio.run(trio.sleep_forever)
