"""Node processes in real namespaces: traffic, impairment, and every way to end."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio

from netem.capture.runfolder import RunFolder
from netem.host.host import Host
from netem.kernel.run import run
from netem.node.build import NodeConfig
from netem.node.client import NodeGoneError, RefusedError, connect
from netem.node.process import main_from_config
from netem.topology.errors import LabError
from tests.netem.node.lab import (
    PAIR,
    PATIENCE_S,
    TWO_BRIDGES,
    WITH_WORK,
    corrupted,
    fork_all,
    plan_of,
    play,
    reap,
    successes,
)
from tests.sandboxed import in_sandbox
from transports.clock import MS

pytestmark = [pytest.mark.needs("netns"), pytest.mark.slow]

BYSTANDERS = """
name: bystanders
seed: 7
topology:
  nodes: {h0: {}, h1: {}, h2: {}, b0: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "b0:e0"]}
    - {endpoints: ["h1:p0", "b0:e1"]}
    - {endpoints: ["h2:p0", "b0:e2"]}
transports: {rc: {kind: rc, mtu: 1024, timeout: 18}}
workload: [{op: write, from: h0, to: h2, size: 16KiB, count: 200}]
"""

MODES = [
    pytest.param({"host_mode": "frame", "host_family": "ipv6"}, id="frame, IPv6"),
    pytest.param({"host_mode": "frame", "host_family": "ipv4"}, id="frame, IPv4"),
    pytest.param({"host_mode": "datagram"}, id="datagram"),
    pytest.param(
        {"host_mode": "frame", "host_stack": "kernel"}, id="frame beside the kernel's stack"
    ),
]


async def whole_run(lab):
    await lab.finish_work()
    return await lab.stop()


@pytest.mark.parametrize("mode", MODES)
class TestTraffic:
    def test_every_message_arrives_as_it_was_sent(self, mode):
        reports = play(plan_of(WITH_WORK, **mode), whole_run)
        assert successes(reports) == 9
        assert corrupted(reports) == 0
        assert sum(flow.retransmissions for flow in reports["h0"].flows) == 0

    def test_every_message_arrives_over_a_link_that_loses(self, mode):
        plan = plan_of(WITH_WORK, link_loss="10%", **mode)
        reports = play(plan, whole_run)
        assert successes(reports) == 9
        assert corrupted(reports) == 0
        assert sum(direction.lost for direction in reports["h0"].directions) > 0
        assert sum(flow.retransmissions for flow in reports["h0"].flows) > 0

    def test_a_delay_of_the_link_is_felt(self, mode):
        plan = plan_of(WITH_WORK, link_delay="5ms", **mode)
        reports = play(plan, whole_run)
        [write] = [flow for flow in reports["h0"].flows if flow.flow.startswith("0/")]
        assert write.finished - write.started >= 10 * MS
        assert corrupted(reports) == 0


@pytest.mark.needs("userns")
def test_without_rights_on_the_host_it_is_the_same():
    reports = play(plan_of(WITH_WORK, host_stack="kernel"), whole_run, user_namespace=True)
    assert successes(reports) == 9
    assert corrupted(reports) == 0


def test_what_is_killed_in_datagram_mode_is_recorded_with_reconstructed_headers():
    async def script(lab):
        reports = await whole_run(lab)
        return reports["h0"].directions[0].lost, lab.spool("h0")

    plan = plan_of(WITH_WORK, link_loss="10%", host_mode="datagram")
    lost, (records, end) = play(plan, script)
    assert end is not None
    killed = [record for record in records if record.killed]
    assert lost == len(killed) > 0
    assert all(record.is_note for record in records if not record.killed)
    assert all("reconstructed" in record.comment for record in killed)
    assert all(record.frame[12:14] == b"\x86\xdd" for record in killed)


class TestControl:
    def test_hello_says_who_and_in_which_state(self):
        async def script(lab):
            before = await lab.clients["h0"].call("hello")
            await lab.start()
            after = await lab.clients["h0"].call("hello")
            return before, after

        before, after = play(plan_of(PAIR), script)
        assert (before["node"], before["phase"]) == ("h0", "ready")
        assert before["directions"] == ["h0:p0->h1:p0"]
        assert after["phase"] == "running"

    def test_starting_twice_is_refused(self):
        async def script(lab):
            await lab.start()
            with pytest.raises(RefusedError, match="h0: start: h0 was started before"):
                await lab.clients["h0"].call("start", at=0)

        play(plan_of(PAIR), script)

    def test_two_settings_are_both_in_force_and_clear_goes_back_to_the_lab_file(self):
        """Field report I03: set jitter, then loss."""

        async def script(lab):
            h0 = lab.clients["h0"]
            one = await h0.call("impair", on="h0:p0", set={"jitter": 3 * MS})
            loss = {"type": "random", "p": 0.5}
            two = await h0.call("impair", on="h0:p0", set={"loss": loss})
            three = await h0.call("impair", on="h0:p0")
            four = await h0.call("impair", on="h0:p0", clear=True)
            return [each["impairment"] for each in (one, two, three, four)], two["engine"]

        (one, two, three, four), engine = play(plan_of(PAIR, link_delay="5ms"), script)
        assert (one["delay"], one["jitter"], one["loss"]) == (5 * MS, 3 * MS, None)
        assert (two["delay"], two["jitter"], two["loss"]["p"]) == (5 * MS, 3 * MS, 0.5)
        assert three == two
        assert (four["delay"], four["jitter"], four["loss"]) == (5 * MS, 0, None)
        assert engine == "ours"

    def test_a_refused_setting_leaves_the_old_one_in_force(self):
        """Field reports I05 and I13."""

        async def script(lab):
            h0 = lab.clients["h0"]
            with pytest.raises(RefusedError, match=r"set.loss.p is 1.001, legal is 0 to 1"):
                await h0.call(
                    "impair",
                    on="h0:p0",
                    set={"loss": {"type": "random", "p": 1.001}, "delay": 1},
                )
            return (await h0.call("impair", on="h0:p0"))["impairment"]

        assert play(plan_of(PAIR, link_delay="5ms"), script)["delay"] == 5 * MS

    def test_a_port_of_another_node_is_refused_with_the_legal_names(self):
        async def script(lab):
            with pytest.raises(RefusedError, match=r"h1:p0 is no port .* legal are h0:p0"):
                await lab.clients["h0"].call("impair", on="h1:p0")

        play(plan_of(PAIR), script)

    def test_loss_set_in_mid_run_and_taken_back_is_gone(self):
        """Field report I06: back to 0 %, nothing is lost any more."""

        async def script(lab):
            h0 = lab.clients["h0"]
            await h0.call("impair", on="h0:p0", set={"loss": {"type": "random", "p": 1.0}})
            await lab.start()
            while not (await lab.stats("h0")).directions[0].lost:
                pass
            await h0.call("impair", on="h0:p0", set={"loss": None})
            lost = (await lab.stats("h0")).directions[0].lost
            async for event in h0.events():
                if event["event"] == "item_done":
                    break
            return lost, (await lab.stats("h0")).directions[0]

        lost, after = play(plan_of(WITH_WORK), script)
        assert after.lost == lost
        assert after.delivered > 0

    def test_an_impairment_of_one_link_costs_the_others_nothing(self):
        """Field report I04: loss for b, added and removed 50 times, while a talks to c."""

        async def meddle(b):
            for _ in range(50):
                for port in ("h1:p0", "b0:e1"):
                    loss = {"type": "random", "p": 1.0}
                    await b.call("impair", on=port, set={"loss": loss})
                    await b.call("impair", on=port, clear=True)

        async def script(lab):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(meddle, lab.clients["h1"])
                await lab.finish_work()
            return await lab.stop()

        reports = play(plan_of(BYSTANDERS), script)
        assert successes(reports) == 200
        assert sum(flow.retransmissions for flow in reports["h0"].flows) == 0
        assert not any(d.lost for name in ("h0", "h2") for d in reports[name].directions)

    def test_a_fault_added_in_mid_run_fires_as_often_as_it_says(self):
        async def script(lab):
            await lab.clients["h0"].call(
                "fault",
                fault={"index": 9, "do": "drop", "on": "h0:p0", "where": {"op": "WRITE"}},
            )
            await lab.finish_work()
            return await lab.stop()

        reports = play(plan_of(WITH_WORK), script)
        assert [(fault.index, fault.fired) for fault in reports["h0"].faults] == [(9, 1)]
        assert reports["h0"].directions[0].lost == 1
        assert successes(reports) == 9

    def test_work_posted_in_mid_run_is_done(self):
        work = {"item": 7, "op": "write", "size": 1000}

        async def script(lab):
            await lab.finish_work()
            for name in ("h1", "h0"):  # who checks must know before anything lands
                await lab.clients[name].call("post", flow="0/h0->h1/0", work=work)
            async for event in lab.clients["h0"].events():
                if event["event"] == "item_done" and event["item"] == 7:
                    break
            return await lab.stop()

        reports = play(plan_of(WITH_WORK), script)
        assert successes(reports) == 10
        assert corrupted(reports) == 0

    def test_work_that_cannot_be_is_refused(self):
        async def script(lab):
            h0 = lab.clients["h0"]
            work = {"item": 7, "op": "write", "size": 1000}
            with pytest.raises(RefusedError, match="no end at h0"):
                await h0.call("post", flow="9/h0->h1/0", work=work)
            with pytest.raises(RefusedError, match="0/h0->h1/0"):
                await h0.call("post", flow="0/h0->h1/0", work={**work, "size": 1 << 30})

        play(plan_of(WITH_WORK), script)


class TestEnds:
    def test_stop_reports_closes_the_spool_logs_the_report_and_exits_with_0(self):
        async def script(lab):
            await lab.finish_work()
            reports = await lab.stop()
            return reports, await lab.ended("h0"), lab.spool("h0"), lab.log("h0")

        reports, code, (records, end), log = play(plan_of(WITH_WORK), script)
        assert code == 0
        assert end is not None
        assert len(records) == reports["h0"].directions[0].delivered
        assert '"counters"' in log

    def test_stop_before_the_start_is_an_end_like_any_other(self):
        async def script(lab):
            await lab.stop()
            return await lab.ended("h0"), lab.spool("h0")

        code, (records, end) = play(plan_of(WITH_WORK), script)
        assert (code, records) == (0, [])
        assert end is not None

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_polite_signal_ends_in_order_with_everything_in_the_spool(self, number):
        """Field report P01: the last ACK is in the file, the file is well formed."""

        async def script(lab):
            await lab.finish_work()
            sent = {name: await lab.stats(name) for name in lab.pids}
            for name in lab.pids:
                lab.signal(name, number)
            codes = [await lab.ended(name) for name in lab.pids]
            return codes, sent, {name: lab.spool(name) for name in lab.pids}

        codes, sent, spools = play(plan_of(WITH_WORK), script)
        assert codes == [0, 0]
        for name, (records, end) in spools.items():
            assert end is not None
            assert len(records) >= sent[name].directions[0].frames

    def test_a_signal_in_the_middle_of_traffic_is_no_different(self):
        async def script(lab):
            await lab.start()
            while not (await lab.stats("h1")).directions[0].frames:
                pass
            lab.signal("h0")
            return await lab.ended("h0"), lab.spool("h0"), lab.log("h0")

        plan = plan_of(WITH_WORK, link_loss="10%", link_delay="1ms")
        code, (records, end), log = play(plan, script)
        assert code == 0
        assert records
        assert end is not None
        assert "SIGTERM: ending in order" in log

    def test_after_kill_9_the_spool_holds_what_was_sent(self):
        async def script(lab):
            await lab.finish_work()
            sent = await lab.stats("h0")
            lab.signal("h0", signal.SIGKILL)
            code = await lab.ended("h0")
            with pytest.raises(NodeGoneError, match="h0: connection ended during stats"):
                await lab.clients["h0"].call("stats")
            return code, sent, lab.spool("h0")

        code, sent, (records, end) = play(plan_of(WITH_WORK), script)
        assert code == -signal.SIGKILL
        assert end is None
        assert len(records) >= sent.directions[0].frames

    def test_a_bug_ends_the_process_loudly_with_the_spool_closed(self, monkeypatch):
        def divide(host, now):
            return now // 0

        async def script(lab):
            with suppress(NodeGoneError):  # on a slow host it is gone before it has replied
                await lab.start()
            return await lab.ended("h0"), lab.spool("h0"), lab.log("h0")

        monkeypatch.setattr(Host, "transmit", divide)
        code, (_, end), log = play(plan_of(PAIR), script)
        assert code == 1
        assert end is not None
        assert "h0 ended by a bug" in log
        assert "ZeroDivisionError" in log

    def test_a_node_whose_interface_is_missing_says_so_and_ends(self, tmp_path):
        def without_links():
            (tmp_path / "nodes").mkdir()
            pids, gate = fork_all(plan_of(PAIR), tmp_path)
            gate.open()
            _, status = os.waitpid(pids["h0"], 0)
            return os.waitstatus_to_exitcode(status)

        assert in_sandbox(without_links) == 3
        log = RunFolder(tmp_path).log("h0").read_text()
        assert log == "h0 cannot start: interface p0: No such device\n"


def processor_ticks(pid):
    """Return how many clock ticks a process has run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_idle_node_says_nothing_and_uses_no_processor_time():
    async def script(lab):
        await lab.start()
        await lab.stats("h0")
        before = processor_ticks(lab.pids["h0"])
        with trio.move_on_after(1):
            async for event in lab.clients["h0"].events():
                raise AssertionError(event)
        return processor_ticks(lab.pids["h0"]) - before, await lab.stats("h0")

    ticks, report = play(plan_of(PAIR), script)
    assert ticks <= 1
    assert report.directions[0].frames == 0


@pytest.mark.needs("tap")
class TestKernelStack:
    def test_a_ping_between_two_nodes_passes_the_link_with_its_delay(self):
        async def script(lab):
            await lab.start()
            addresses = {node.name: node.ports[0].ipv6 for node in lab.plan.nodes}
            out = await lab.shell("h0", "ping", "-c", "3", "-i", "0.2", addresses["h1"])
            return out, await lab.stop(), lab.spool("h0")

        plan = plan_of(PAIR, host_stack="kernel", link_delay="5ms")
        out, reports, (records, _) = play(plan, script)
        assert " 0% packet loss" in out
        fastest = float(out.rpartition("=")[2].split("/")[0])
        assert fastest >= 10
        assert reports["h0"].directions[0].frames == len(records) >= 3


class TestWire:
    def test_frames_pass_between_two_bridges_delayed_and_recorded_by_their_names(self):
        async def script(lab):
            await lab.finish_work()
            reports = await lab.stop()
            return reports, lab.spool("wire-b0.e1--b1.e0")

        text = TWO_BRIDGES + "workload: [{op: write, from: h0, to: h1, size: 1KiB}]\n"
        reports, (records, end) = play(plan_of(text), script)
        wire = reports["wire-b0.e1--b1.e0"]
        assert successes(reports) == 1
        assert {d.direction for d in wire.directions} == {"b0:e1->b1:e0", "b1:e0->b0:e1"}
        assert sum(d.delivered for d in wire.directions) == len(records) >= 2
        [write] = reports["h0"].flows
        assert write.finished - write.started >= 20 * MS
        assert end is not None


class TestConfiguration:
    def config(self, tmp_path, **changes):
        config = NodeConfig(plan_of(PAIR), "h0", str(tmp_path), None, 0)
        path = tmp_path / "h0.json"
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(config, **changes)))
        return path

    def test_a_node_runs_from_a_file_in_the_namespace_it_is_started_in(self, tmp_path):
        """What a container does: no launcher, the interfaces are there."""
        path = self.config(tmp_path)

        def alone():
            run(("ip", "link", "add", "p0", "type", "veth", "peer", "name", "other"))
            run(("ip", "link", "set", "p0", "up"))
            run(("ip", "link", "set", "other", "up"))
            pid = os.fork()
            if not pid:
                main_from_config(path)
                os._exit(0)
            return trio.run(talk, pid)

        async def talk(pid):
            with trio.fail_after(PATIENCE_S):
                async with connect(tmp_path / "h0.sock", wait_s=PATIENCE_S) as client:
                    said = await client.call("hello")
                    await client.call("stop")
                return said["node"], await trio.to_thread.run_sync(reap, pid)

        assert in_sandbox(alone) == ("h0", 0)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (b"{", "truncated"),
            (b"\xff", "malformed|utf-8"),
            (b'{"plan": 7, "name": "h0"}', r"\$\.plan"),
            (b'{"name": "h0"}', "plan"),
        ],
    )
    def test_a_file_that_is_no_configuration_is_one_line(self, tmp_path, text, reason):
        path = tmp_path / "node.json"
        path.write_bytes(text)
        with pytest.raises(LabError, match=reason) as refusal:
            main_from_config(path)
        assert len(refusal.value.problems) == 1

    def test_a_file_that_is_not_there_is_one_line(self, tmp_path):
        with pytest.raises(LabError, match="No such file"):
            main_from_config(tmp_path / "node.json")

    def test_a_name_that_is_no_node_is_refused_with_the_legal_ones(self, tmp_path):
        with pytest.raises(LabError, match="no node is called h9; legal: h0, h1"):
            main_from_config(self.config(tmp_path, name="h9"))
