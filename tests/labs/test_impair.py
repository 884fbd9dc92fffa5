"""Impairment from outside: changed by hand in labs that are up, on schedule in runs.

What counts is what programs in the nodes, and the capture, have seen.
"""

import json
import os
import signal
import statistics
import uuid
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
import trio
from click.testing import CliRunner

import netem.cli
from netem.cli.main import cli
from netem.impair.model import Impairment, RandomLoss
from netem.lab import impair, registry
from tests.labs.commands import (
    captured,
    fabriclab,
    processes_of,
    result,
    start,
    wait_until,
)
from tests.labs.traffic import PORT, SEND, exchange, receiving, send
from transports.clock import MS

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]

SCHEMA = json.loads(Path(netem.cli.__file__).with_name("verbs.schema.json").read_text())

# Four hosts at a bridge, two families, and one link to be tried out on its own.
LAB = """
name: {name}
seed: {seed}
dilation: 1
capture: {{max: 64MiB}}
topology:
  nodes:
    h0: {{}}
    h1: {{}}
    h2: {{}}
    h3: {{family: ipv4}}
    h4: {{family: ipv4}}
    br0: {{kind: bridge}}
    br1: {{kind: bridge}}
  links:
    - {{endpoints: ["h0:p0", "br0:e0"], delay: 1ms}}
    - {{endpoints: ["h3:p0", "br0:e1"]}}
    - {{endpoints: ["br0:e2", "br1:e2"]}}
    - {{endpoints: ["h1:p0", "br1:e0"]}}
    - {{endpoints: ["h2:p0", "br1:e1"]}}
    - {{endpoints: ["h4:p0", "br1:e3"]}}
"""


class Up:
    """A lab that is up."""

    def __init__(self, place, text, seed=1):
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.place = place
        self.folder = place / self.name
        file = place / f"{self.name}.yaml"
        file.write_text(text.format(name=self.name, seed=seed))
        ran = fabriclab("up", file, "--out", self.folder, cwd=place)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        self.running = registry.find(self.name)
        self.plan = impair.plan_of(self.running)

    def impair(self, verb, *argv):
        """Call `fabriclab impair VERB`, in this process: it is asked for a hundred times."""
        return CliRunner().invoke(cli, ["impair", verb, *argv, "--lab", self.name])

    def ask(self, verb, *argv):
        """Run it with --json and return each direction by its name."""
        ran = self.impair(verb, *argv, "--json")
        assert ran.exit_code == 0, ran.stdout + ran.stderr
        printed = json.loads(ran.stdout)
        jsonschema.validate(printed, SCHEMA | {"$ref": "#/$defs/impair"})
        return {one["direction"]: one for one in printed["directions"]}

    def counts(self, direction):
        """Return the counters of a direction, as `inspect` prints them."""
        ran = fabriclab("inspect", "--lab", self.name, "--json", cwd=self.place)
        links = json.loads(ran.stdout)["links"]
        return next(link for link in links if link["direction"] == direction)

    def exchange(self, source, target, count, **how):
        return exchange(self.name, source, target, count, cwd=self.place, **how)

    def down(self):
        return fabriclab("down", self.name, cwd=self.place)


@pytest.fixture(scope="module")
def lab_for_all(tmp_path_factory):
    up = Up(tmp_path_factory.mktemp("impair"), LAB)
    yield up
    up.down()


@pytest.fixture
def lab(lab_for_all):
    """The one lab, with the lab file's values in force."""
    lab_for_all.impair("clear")
    return lab_for_all


# -- set, show, clear --------------------------------------------------------------------------


def test_two_settings_are_both_in_force_and_read_back(lab):
    """I03, I01: the second call leaves the first; both print what is in force, and by whom."""
    lab.ask("set", "h0->br0", "--jitter", "200us")
    set_ = lab.ask("set", "h0--br0", "--loss", "5%")
    there, back = set_["h0:p0->br0:e0"], set_["br0:e0->h0:p0"]
    loss = {"type": "random", "p": 0.05, "correlation": 0.0}
    assert there["impairment"] == vars_of(delay=1 * MS, jitter=200_000, loss=loss)
    assert back["impairment"] == vars_of(delay=1 * MS, loss=loss)
    assert {there["engine"], back["engine"]} == {"ours"}
    shown = lab.ask("show", "h0--br0")
    assert shown["h0:p0->br0:e0"]["impairment"] == there["impairment"]
    ran = fabriclab("impair", "show", "h0->br0", "--lab", lab.name, cwd=lab.place)
    assert "delay 1ms jitter 200us loss 5%" in ran.stdout
    assert "ours" in ran.stdout
    cleared = lab.ask("clear", "h0--br0")
    assert cleared["h0:p0->br0:e0"]["impairment"] == vars_of(delay=1 * MS)
    assert cleared["h0:p0->br0:e0"]["layers"] == []


def vars_of(**changes):
    """Return an Impairment as JSON has it."""
    return {
        name: getattr(Impairment(), name) for name in Impairment.__struct_fields__
    } | changes


def test_show_and_clear_without_a_link_mean_all_links(lab):
    lab.ask("set", "br0--br1", "--loss", "50%")
    assert len(lab.ask("show")) == 12
    assert all(one["layers"] == [] for one in lab.ask("clear").values())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--loss", "100.1%"], "--loss: 100.1% is out of range; legal: 0% to 100%"),
        (["--loss", "-1%"], "--loss: -1% is out of range"),
        (["--loss", "5"], "--loss: 5 has no unit; write 5%"),
        (["--delay", "5"], "--delay: 5 has no unit; write 5ms"),
        (["--delay", "-1ms"], "--delay: -1ms is negative"),
        (["--delay", "100000000s"], "--delay: 100000000s is too large; at most 1000000s"),
        (["--rate", "0bit"], "--rate: 0bit lets nothing pass"),
        (["--loss", "{model: gemodle, p: 1%}"], "did you mean gemodel"),
        (["--loss", "{"], "--loss: line 1"),
        (["--reorder", "5%"], "--reorder: does nothing without delay"),
        (["--gap", "5"], "--gap: does nothing without reorder"),
        (["--loss", "5%", "--for", "5"], "--for: 5 has no unit; write 5ms"),
        (["--loss", "5%", "--for", "0s"], "--for: 0 changes nothing"),
        ([], "say what to change"),
        (["--for", "5s"], "say what to change"),
        (["--down", "--up"], "contradict"),
        (["--carrier"], "--down"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(lab, flags, said):
    """I13, I14: 100.1 % and -1 are refused, as is a bare number, and more than there can be."""
    ran = lab.impair("set", "br1->h2", *flags)
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert lab.ask("show", "br1->h2")["br1:e1->h2:p0"]["layers"] == []


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("h0--h1", "no link between h0 and h1; h0 is linked to br0"),
        ("h9->br0", "no node h9"),
        ("h0-", "write it in quotes"),
    ],
)
def test_a_link_that_is_none_is_refused(lab, link, said):
    ran = lab.impair("set", link, "--loss", "5%")
    assert ran.exit_code == 2
    assert said in ran.stderr


def test_without_a_lab_there_is_nothing_to_impair(tmp_path):
    ran = fabriclab("impair", "show", "--lab", "nosuchlab", cwd=tmp_path)
    assert ran.returncode == 2
    assert "is not up" in ran.stderr


def test_a_change_for_a_time_is_over_when_it_says(lab):
    """The window of the seen loss is in the events, by the lab's own clock."""
    before = lab.ask("show", "h0->br0")["h0:p0->br0:e0"]["impairment"]
    lab.ask("set", "h0->br0", "--loss", "100%", "--for", "300ms")
    wait_until(
        lambda: lab.ask("show", "h0->br0")["h0:p0->br0:e0"]["layers"] == [], "it is over"
    )
    assert lab.ask("show", "h0->br0")["h0:p0->br0:e0"]["impairment"] == before
    rows = [json.loads(line) for line in (lab.folder / "events.jsonl").read_text().splitlines()]
    first, second = [row for row in rows if row["event"] == "impaired"][-2:]
    assert (first["does"], second["does"]) == ("delay 1ms loss 100%", "delay 1ms")
    assert 300 * MS <= second["ts_ns"] - first["ts_ns"] < 5_000 * MS


def test_a_failed_read_changes_nothing(lab):
    """I05: a node that does not answer: the command fails, old values stay everywhere."""
    old = lab.ask("show", "h0--br0")["h0:p0->br0:e0"]["impairment"]
    [pid] = [
        pid
        for pid in processes_of(lab.folder)
        if Path(f"/proc/{pid}/comm").read_text().strip() == "h0"
    ]
    os.kill(pid, signal.SIGSTOP)
    try:
        for verb in (["show"], ["set", "--delay", "7ms"]):
            ran = lab.impair(verb[0], "h0--br0", "br0->br1", *verb[1:])
            assert ran.exit_code == 1, ran.stdout + ran.stderr
            assert ran.stdout == ""
            assert "h0: no answer to impair within 3 s" in ran.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    shown = lab.ask("show", "h0--br0", "br0->br1")
    assert shown["h0:p0->br0:e0"]["impairment"] == old
    assert all(one["layers"] == [] for one in shown.values())


# -- what programs see -------------------------------------------------------------------------


@pytest.mark.needs("tap")
def test_none_and_all_are_ordinary(lab):
    """I13: with 100 % nothing passes, with 0 % everything."""
    lab.ask("set", "br0->br1", "--loss", "100%")
    before = lab.counts("br0:e2->br1:e2")
    send(lab.name, "h0", "h1", 100, cwd=lab.place)
    after = lab.counts("br0:e2->br1:e2")
    assert after["lost"] - before["lost"] == 100
    assert after["delivered"] == before["delivered"]
    lab.ask("set", "br0->br1", "--loss", "0%")
    assert lab.exchange("h0", "h1", 100, idle=0.5) == list(range(100))


@pytest.mark.needs("tap")
def test_loss_set_back_to_none_is_gone(lab):
    """I06: 10 % -> 0 %: of 10,000 frames none is lost."""
    lab.ask("set", "br0->br1", "--loss", "10%")
    send(lab.name, "h0", "h1", 500, cwd=lab.place)
    before = lab.counts("br0:e2->br1:e2")
    assert before["lost"] > 0
    lab.ask("set", "br0->br1", "--loss", "0%")
    # A busy host loses some before they are on the link, where its own queues are full.
    for _ in range(20):
        send(lab.name, "h0", "h1", 1000, pps=5000, cwd=lab.place)
        after = lab.counts("br0:e2->br1:e2")
        if after["frames"] - before["frames"] >= 10_000:
            break
    assert after["frames"] - before["frames"] >= 10_000
    assert after["lost"] == before["lost"]
    assert after["delivered"] - before["delivered"] == after["frames"] - before["frames"]


@pytest.mark.needs("tap")
def test_both_families_are_impaired(lab):
    """I11: 50 % loss, flows of IPv4 and IPv6: both near half."""
    lab.ask("set", "br0->br1", "--loss", "50%")
    for source, target in (("h0", "h1"), ("h3", "h4")):
        seen = lab.exchange(source, target, 1000)
        assert abs(len(seen) - 500) < 80, "five standard errors"


@pytest.mark.needs("tap")
def test_an_impairment_comes_and_goes_without_a_lost_bystander(lab):
    """I04: a steady flow h0 -> h2 while loss for h1 is added and removed 50 times."""
    ports = impair.ports_of(lab.plan, ["br1->h1"])
    all_lost = impair.Change({"loss": RandomLoss(1.0)})

    async def come_and_go():
        for _ in range(50):
            [state] = await impair.change(lab.running, lab.plan, ports, all_lost)
            assert state.impairment.loss == RandomLoss(1.0)
            [state] = await impair.clear(lab.running, lab.plan, ports)
            assert state.impairment.loss is None

    count = 3000
    before = lab.counts("br1:e0->h1:p0")["lost"]
    with receiving(lab.name, "h2", cwd=lab.place) as bystander:
        argv = ("exec", "--lab", lab.name, "h0", "python3", "-c")
        flows = [
            start(*argv, SEND, target, PORT, count, 500, 100, cwd=lab.place)
            for target in ("h1", "h2")
        ]
        rounds = 0
        while any(flow.poll() is None for flow in flows):
            trio.run(come_and_go)
            rounds += 50
        for flow in flows:
            out, err = flow.communicate(timeout=60)
            assert flow.returncode == 0, out + err
    assert rounds >= 50
    assert bystander == list(range(count))
    assert lab.counts("br1:e0->h1:p0")["lost"] > before


TALK = """
import socket, sys
with socket.create_server(("", 7778), family=socket.AF_INET6) as server:
    print("ready", flush=True)
    peer = server.accept()[0]
    size = 0
    while chunk := peer.recv(65536):
        size += len(chunk)
print(size)
"""
POUR = """
import socket, sys, time
peer = socket.create_connection(("h1", 7778), timeout=60)
begin = time.monotonic()
sent = 0
while time.monotonic() - begin < float(sys.argv[1]):
    peer.sendall(bytes(1000))
    sent += 1000
    time.sleep(0.002)
peer.shutdown(socket.SHUT_WR)
print(sent)
"""


@pytest.mark.needs("tap")
def test_bytes_flow_again_after_a_link_was_down(lab):
    """W09: the link goes down in the middle of a transfer and comes back by itself."""
    talk = ("exec", "--lab", lab.name, "h1", "python3", "-c", TALK)
    pour = ("exec", "--lab", lab.name, "h0", "python3", "-c", POUR, 6)
    with start(*talk, cwd=lab.place) as server:
        assert server.stdout.readline() == "ready\n"
        with start(*pour, cwd=lab.place) as client:
            wait_until(lambda: lab.counts("br0:e2->br1:e2")["frames"] > 200, "bytes flow")
            down = lab.ask("set", "br0--br1", "--down", "--for", "1s")
            assert [one["down"] for one in down.values()] == [["by hand"]] * 2
            sent, err = client.communicate(timeout=60)
            assert client.returncode == 0, err
        got, err = server.communicate(timeout=60)
    assert int(got) == int(sent) > 0, err
    assert lab.counts("br0:e2->br1:e2")["cut"] > 0
    shown = lab.ask("show", "br0--br1")
    assert all(one["down"] == [] for one in shown.values())


@pytest.mark.needs("tap")
def test_a_bridge_sees_a_carrier_go_and_come(lab):
    """With --carrier the kernel at the other end knows as well."""
    state = ("exec", "--lab", lab.name, "br0", "cat", "/sys/class/net/e0/carrier")
    lab.ask("set", "h0--br0", "--down", "--carrier")
    wait_until(lambda: fabriclab(*state, cwd=lab.place).stdout == "0\n", "no carrier")
    lab.ask("set", "h0--br0", "--up")
    wait_until(lambda: fabriclab(*state, cwd=lab.place).stdout == "1\n", "a carrier")
    # The kernel forwards to the port again when its work queue has got to it.
    wait_until(lambda: lab.exchange("h0", "h1", 10, idle=0.5) == list(range(10)), "traffic")


PAIR = """
name: {name}
seed: {seed}
dilation: 1
topology:
  nodes: {{h0: {{}}, h1: {{}}}}
  links: [{{endpoints: ["h0:p0", "h1:p0"], loss: 10%, duplicate: 2%, corrupt: 3%}}]
"""


@pytest.mark.needs("tap")
def test_the_same_seed_touches_the_same_packets(tmp_path):
    """I10: open-loop traffic in real runs; same seed, same list, another seed, another list."""

    def touched(seed):
        lab = Up(tmp_path, PAIR, seed)
        try:
            send(lab.name, "h0", "h1", 1000, cwd=tmp_path)
        finally:
            lab.down()
        frames = [frame for frame in captured(lab.folder) if frame.port == "h0:p0"]
        assert len(frames) >= 1000
        return [(frame.frame[62:66], frame.remarks) for frame in frames if frame.remarks]

    one, two, other = touched(7), touched(7), touched(8)
    assert one == two
    assert len(one) > 100
    assert one != other


# -- on schedule, in runs ----------------------------------------------------------------------

SLOW = """
name: scheduled
seed: 1
dilation: 1
limit: 60s
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"], rate: 5mbit}]
transports: {rc: {timeout: 14, retry: 7, window: 16}}
workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 10}]
"""  # a second
ENGINES = ("run", "sim")


def run(engine, text, place, code=0):
    """Run or simulate a lab; return run.json and the capture."""
    lab = place / "lab.yaml"
    lab.write_text(text)
    ran = fabriclab(engine, lab, "--out", place / "run", cwd=place)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return result(place / "run"), captured(place / "run")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_exchange_meets_one_outage_in_one_direction(engine, tmp_path):
    """I02: a gap of 300 ms in one direction only."""
    text = SLOW + "faults: [{at: 300ms, on: h0->h1, down: 300ms}]\n"
    ran, frames = run(engine, text, tmp_path)
    assert ran["verdict"] == "pass"
    (fault,) = ran["faults"]
    assert (fault["fired"], fault["wanted"]) == (1, 1)
    dead = [frame for frame in frames if frame.is_killed]
    assert fault["touched"] == len(dead) > 0
    assert {frame.port for frame in dead} == {"h0:p0"}
    assert all("link down (fault 0)" in frame.remarks[0] for frame in dead)
    sent = [f.at for f in frames if f.port == "h0:p0" and not f.is_killed]
    gap = max(later - sooner for sooner, later in pairwise(sent))
    assert gap >= 290 * MS
    assert any(frame.port == "h1:p0" for frame in frames if frame.at > dead[-1].at)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_hold_is_a_pause_without_loss(engine, tmp_path):
    text = SLOW.replace("timeout: 14", "timeout: 17")
    ran, frames = run(
        engine, text + "faults: [{at: 300ms, on: h0->h1, hold: 200ms}]\n", tmp_path
    )
    assert ran["verdict"] == "pass"
    assert ran["faults"][0]["touched"] > 0
    assert not any(frame.is_killed for frame in frames)
    assert sum(flow["retransmissions"] for flow in ran["flows"]) == 0
    sent = [f.at for f in frames if f.port == "h0:p0"]
    assert max(b - a for a, b in pairwise(sent)) >= 190 * MS


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_two_of_a_kind_are_dropped_and_the_third_passes(engine, tmp_path):
    """I09."""
    text = SLOW.replace("op: write", "op: send").replace("64KiB, count: 10", "100B, count: 6")
    ran, frames = run(
        engine,
        text + "faults: [{do: drop, on: h0:p0, where: {op: SEND}, count: 2}]\n",
        tmp_path,
    )
    assert ran["faults"][0]["fired"] == 2
    mine = [frame for frame in frames if frame.port == "h0:p0"]
    assert [frame.is_killed for frame in mine[:6]] == [True, True, False, False, False, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_node_that_the_lab_file_kills_is_no_failure(engine, tmp_path):
    text = SLOW.replace("count: 10", "count: 10, expect_status: RETRY_EXC_ERR")
    text = text.replace("retry: 7", "retry: 1")
    ran, frames = run(engine, text + "faults: [{at: 300ms, on: h1, kill: 200ms}]\n", tmp_path)
    assert (ran["verdict"], ran["why"]) == ("pass", "")
    assert (ran["faults"][0]["fired"], ran["faults"][0]["touched"]) == (1, None)
    assert ran["capture"]["complete"], ran["capture"]["remark"]
    dead = [frame for frame in frames if frame.is_killed]
    assert dead
    assert all(f.remarks[0] == "dropped by link down (h1 killed)" for f in dead)
    rows = (tmp_path / "run" / "events.jsonl").read_text()
    assert '"node":"h1","event":"killed","why":"fault 0"' in rows


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("node", ["h0", "h1"])
def test_both_ends_restarted_begin_their_work_anew(engine, node, tmp_path):
    both = "{at: 300ms, on: h0, kill: 300ms}, {at: 300ms, on: h1, kill: 300ms}"
    ran, frames = run(engine, SLOW + f"faults: [{both}]\n", tmp_path)
    assert (ran["verdict"], ran["why"]) == ("pass", "")
    assert ran["flows"][0]["completed"] == 10
    assert ran["capture"]["complete"], ran["capture"]["remark"]
    times = [f.at for f in frames if f.port == f"{node}:p0"]
    assert max(b - a for a, b in pairwise(times)) >= 290 * MS


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("{at: 50s, on: h0--h1, down: 1ms}", "never fired"),
        ("{at: 50s, on: h1, kill: true}", "never fired"),
        ("{at: 1us, on: h1->h0, hold: 1ns}", "touched no frame"),
        ("{do: trim, on: h1:p0, where: {op: WRITE}, trim: {size: 128B}}", "never fired"),
    ],
)
def test_a_fault_that_came_to_nothing_is_inconclusive(engine, fault, why, tmp_path):
    """M13, for each kind."""
    text = SLOW.replace("count: 10", "count: 1") + f"faults: [{fault}]\n"
    ran, _ = run(engine, text, tmp_path, code=4)
    assert ran["verdict"] == "inconclusive"
    assert why in ran["why"]


DELAYED = """
name: delayed
seed: 1
dilation: 1
topology:
  nodes: {h0: {}, b0: {kind: bridge}, h1: {}}
  links:
    - {endpoints: ["h0:p0", "b0:e0"], rate: 8816kbit}
    - {endpoints: ["b0:e1", "h1:p0"], delay: 70ms}
transports: {rc: {timeout: 18, window: 512}}
workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 20}]
"""  # a packet each millisecond


@pytest.mark.parametrize("engine", ENGINES)
def test_a_delay_is_what_was_asked_for(engine, tmp_path):
    """I07: 70 ms at 1,000 packets a second; median and 99th percentile, from the capture."""
    ran, frames = run(engine, DELAYED, tmp_path)
    left = {f.packet: f.at for f in frames if f.port == "h0:p0"}
    took = [f.at - left[f.packet] for f in frames if f.port == "b0:e1" and f.packet in left]
    assert len(took) >= 1280
    median, late = statistics.median(took), statistics.quantiles(took, n=100)[98]
    if engine == "sim":
        assert len(set(took)) == 1, "each exactly as late as all others"
        assert 70 * MS <= median < 70.01 * MS
    else:
        assert 70 * MS <= median <= 77 * MS
        assert late <= 77 * MS + ran["lateness"]["worst"], "as late as this host was"
