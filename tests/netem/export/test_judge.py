"""The judge of a lab in containers, with members that only speak its protocol."""

import json
import socketserver
import threading
from contextlib import ExitStack

import pytest

from netem.export.config import ContainerConfig, Source, planned
from netem.export.fitting import JUDGE, members
from netem.export.judge import judge

LAB = """
topology:
  nodes: {h0: {kind: host}, h1: {kind: host}}
  links: [{endpoints: ["h0:p0", "h1:p0"], mtu: 4300, rate: 1gbit}]
transports: {mrc: {kind: mrc, paths: 1, connect: setup}}
workload: [{op: write, from: h0, to: h1, size: 9000B}]
expect: [all_complete]
limit: 5s
"""
OFFER = {"flow": "0/h0->h1/0", "role": "requester", "says": "an offer"}


class Member(socketserver.UnixStreamServer):
    """Answers yes to all; when it is started, or hears of its peer, it has an event to tell."""

    def __init__(self, path, name, events):
        super().__init__(str(path), Speaker)
        self.name, self.events, self.calls = name, events, []


class Speaker(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            call = json.loads(line)
            do = call["do"]
            self.server.calls.append(call)
            report = {"report": {"node": self.server.name}} if do == "stop" else {}
            self.say({"id": call["id"], "ok": True, **report})
            if do in self.server.events:
                self.say(
                    {"event": {"at": 1, "node": self.server.name} | self.server.events[do]}
                )

    def say(self, message):
        self.wfile.write(json.dumps(message).encode() + b"\n")


@pytest.fixture
def run(tmp_path):
    """Return what is called to judge a run, and gives what each member was told."""
    config = ContainerConfig(
        Source("lab.yaml", "told"), "compose", JUDGE,
        shared=str(tmp_path / "shared"), captures=str(tmp_path / "captures"),
    )  # fmt: skip
    (tmp_path / "shared" / "nodes").mkdir(parents=True)
    (tmp_path / "captures").mkdir()

    def judged(events):
        plan = planned(LAB, config.source, config.form)
        with ExitStack() as stack:
            there = {}
            for name in members(plan):
                path = tmp_path / "shared" / f"{name}.sock"
                member = stack.enter_context(Member(path, name, events.get(name, {})))
                thread = threading.Thread(
                    target=member.serve_forever, kwargs={"poll_interval": 0.01}
                )
                thread.start()
                stack.callback(thread.join)
                stack.callback(member.shutdown)
                there[name] = member
            result, _ = judge(config, plan)
        return result, {name: member.calls for name, member in there.items()}

    return judged


def test_what_one_end_of_a_flow_says_is_carried_to_the_other(run):
    """Without it no connection with `connect: setup` comes up, and the run ends at `limit`."""
    done = {"event": "item_done", "flow": OFFER["flow"], "item": 0}
    result, calls = run({"h0": {"start": {"event": "setup", **OFFER}}, "h1": {"hear": done}})
    heard = [call for call in calls["h1"] if call["do"] == "hear"]
    assert [{key: call[key] for key in OFFER} for call in heard] == [OFFER]
    assert not [call for call in calls["h0"] if call["do"] == "hear"]
    assert "limit" not in result.why
    assert [call["do"] for call in calls["h0"]] == ["hello", "start", "stop"]
