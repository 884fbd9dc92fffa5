"""Tunnels are opened with the keys that a capture carries, and judged inside."""

from types import SimpleNamespace

import pytest

from netem.analysis.records import CaptureReader
from netem.capture.runfolder import RunFolder
from netem.cli.options import make_plan
from netem.lab.simulate import simulate
from tests.netem.analysis.check.conftest import judged
from wire import pcapng

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    plan, _ = make_plan("two-sites-overlay")
    folder = RunFolder.create("run", tmp_path_factory.mktemp("runs") / "run")
    simulate(plan, folder, lambda _done, _total: None)
    with folder.capture.open("rb") as file:
        reader = CaptureReader(file)
        return reader, list(reader.records())


def between_sites(lab, *, secrets=True, change=None):
    """Return a capture of what the gateways send to each other alone, as a stranger has it."""
    reader, records = lab
    data = pcapng.section_header() + pcapng.interface_block("eth0")
    if secrets:
        for log in reader.secrets:
            data += pcapng.decryption_secrets(pcapng.SECRETS_WIREGUARD, log)
    names = [(one.node, one.leads_to.partition(":")[0]) for one in reader.interfaces]
    for _, at, where, frame, *_ in records:
        if all(name.startswith("t2") for name in names[where]):
            sent = frame if change is None else change(frame)
            data += pcapng.enhanced_packet(0, at, sent)
    return data


def test_what_the_tunnel_carries_is_judged(lab):
    found = judged(between_sites(lab))
    assert (found.verdict, found.findings) == ("pass", [])
    assert {flow.service for flow in found.flows} == {"RC"}
    assert sum(flow.packets for flow in found.flows) > 300


def test_without_keys_it_stays_closed(lab):
    found = judged(between_sites(lab, secrets=False))
    assert (found.verdict, found.flows) == ("pass", [])


def test_a_message_that_does_not_open_is_found(lab):
    done = []

    def change(frame):
        if len(frame) > 1000 and not done:
            done.append(1)
            return frame[:-1] + bytes([frame[-1] ^ 1])
        return frame

    found = judged(between_sites(lab, change=change))
    assert [one.clause for one in found.findings if one.severity == "violation"] == ["wg/D5"]


def test_keys_of_one_end_are_enough_and_rubbish_beside_them_is_passed_over(lab):
    reader, records = lab
    log = b"".join(reader.secrets).splitlines(keepends=True)
    half = len(log) // 2
    for part in (log[:half], log[half:]):
        text = b"no line of a log\nPRESHARED_KEY = x\n" + b"".join(part)
        one_end = SimpleNamespace(secrets=[text], interfaces=reader.interfaces)
        found = judged(between_sites((one_end, records)))
        assert (found.verdict, bool(found.flows)) == ("pass", True)
