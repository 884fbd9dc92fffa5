"""The page of a run: whole, by itself, and as large as it may be."""

import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from netem.analysis.reader import read_capture
from netem.capture.runfolder import RunFolder, RunFolderError
from netem.cli.main import cli
from netem.cli.options import make_plan
from netem.lab.simulate import simulate
from netem.report.page import page
from netem.report.traffic import by_plane, payload_of

VOID = {"meta"}


class Strict(HTMLParser):
    """Takes HTML whose every element is closed, and remembers what it says."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def parsed(text):
    parser = Strict()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def simulated(lab, tmp_path, *overrides):
    plan, _ = make_plan(lab, overrides)
    folder = RunFolder.create(lab, tmp_path / lab)
    simulate(plan, folder, lambda _done, _total: None)
    return folder


def sections(text):
    """Return the parts of the page by their titles."""
    parts = re.split(r"<h2>(.*?)</h2>", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def gap(tmp_path_factory):
    return simulated("psn-gap", tmp_path_factory.mktemp("runs"))


def test_a_page_needs_nothing_from_elsewhere(gap):
    text = page(gap.path)
    found = parsed(text)
    names = {name for name, _ in found.attributes}
    assert not names & {"src", "onclick", "onload"}
    hrefs = [value for name, value in found.attributes if name.endswith("href")]
    assert all(value.startswith("#") for value in hrefs)
    values = [value for name, value in found.attributes if name != "xmlns"]
    assert not any("//" in value for value in values if value)
    assert "<script" not in text


def test_what_a_run_was_is_on_its_page(gap):
    found = sections(page(gap.path))
    assert "h0:p0-&gt;h1:p0" in found["Fabric"]
    assert "WRITE_MIDDLE psn +5" in found["Faults and expectations"]
    assert "Gbit/s" in found["Goodput by plane"]
    assert "dropped by fault 0" in found["Around the faults"]
    assert "NAK PSN_SEQUENCE_ERROR" in found["Around the faults"]
    assert "pass</b>: 0 violations" in found["Findings of check"]
    assert "no samples" in found["Queues"]


@pytest.mark.slow
def test_entropy_values_planes_and_links_that_go_down(tmp_path):
    text = page(simulated("mrc-two-plane", tmp_path).path)
    parsed(text)
    found = sections(text)
    assert "ASSUMED_BAD: a packet was lost" in found["Entropy values"]
    assert ">p0<" in found["Goodput by plane"]
    assert ">p1<" in found["Goodput by plane"]


@pytest.mark.slow
def test_queues_and_cnps(tmp_path):
    found = sections(page(simulated("dcqcn-incast", tmp_path).path))
    assert "KiB waiting" in found["Queues"]
    assert "class" in found["Queues"]


def test_goodput_is_the_payload_that_was_sent_once(gap):
    """8 KiB and 4 KiB written: what was sent again does not count twice."""
    rates, end = by_plane(gap.capture, ["h0"])
    with gap.capture.open("rb") as file:
        sent = sum(
            payload_of(record.frame)
            for record in read_capture(file)
            if not any(one.startswith(("retrans", "dropped")) for one in record.remarks)
        )
    bin_us = end / len(rates["p0"])
    total = sum(rates["p0"]) * bin_us * 1000 / 8
    assert total == pytest.approx(sent)
    assert sent > 0


def test_names_of_labs_and_remarks_are_text_and_no_markup(gap, tmp_path):
    copy = tmp_path / "run"
    copy.mkdir()
    text = gap.result.read_text().replace('"psn-gap"', '"<b>&amp;"')
    (copy / "run.json").write_text(text)
    (copy / "lab.pcapng").write_bytes(gap.capture.read_bytes())
    found = parsed(page(copy))
    assert "<b>&amp;" in found.texts


def test_a_run_without_a_capture_or_events_has_a_page(gap, tmp_path):
    (tmp_path / "run.json").write_bytes(gap.result.read_bytes())
    found = sections(page(tmp_path))
    assert "no capture" in found["Capture"]
    assert "no events" in found["Entropy values"]


def test_a_capture_that_is_cut_is_told_as_far_as_it_goes(gap, tmp_path):
    (tmp_path / "run.json").write_bytes(gap.result.read_bytes())
    (tmp_path / "lab.pcapng").write_bytes(gap.capture.read_bytes()[:-500])
    assert "in the middle of a block" in sections(page(tmp_path))["Findings of check"]


@pytest.mark.parametrize("text", [None, "{", '{"lab": 3}'])
def test_a_folder_without_a_run_is_refused_in_a_line(tmp_path, text):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"run\.json"):
        page(tmp_path)
    ran = CliRunner().invoke(cli, ["report", str(tmp_path)])
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)


def test_the_verb_writes_the_page_into_the_folder_or_elsewhere(gap, tmp_path):
    ran = CliRunner().invoke(cli, ["report", str(gap.path)])
    assert ran.exit_code == 0, ran.output
    there = gap.path / "report.html"
    assert there.read_text().startswith("<!DOCTYPE html>")
    other = tmp_path / "other.html"
    CliRunner().invoke(cli, ["report", str(gap.path), "--to", str(other)])
    assert other.read_text() == there.read_text()
