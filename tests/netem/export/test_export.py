"""Labs as compose files and containerlab topologies: what they hold, and what they refuse."""

import ipaddress
from pathlib import Path

import msgspec
import pytest
import yaml

from netem.capture.ends import captured_links, node_header, sniffed_ends, wire_header
from netem.export import clab, compose, folder
from netem.export.config import ContainerConfig, Source, planned, read
from netem.export.fitting import JUDGE, members
from netem.export.places import DEFAULT_SUBNET, networks
from netem.lab.find import built_in, find
from netem.topology.errors import LabError

READY = Path(__file__).parents[3] / "docker" / "labs"
READY_LABS = sorted(path.name for path in READY.iterdir())
# What docker-compose 1.29 (its schema for files without a version) and the present
# specification of Compose both know, of what we could want to use
SERVICE_KEYS = {
    "cap_add", "cap_drop", "command", "depends_on", "devices", "healthcheck", "image",
    "network_mode", "networks", "stop_grace_period", "sysctls", "volumes",
}  # fmt: skip
NETWORK_KEYS = {"driver", "driver_opts", "enable_ipv6", "ipam"}
OVERLAY = "rc-over-overlay"


def plan(lab, form="compose", **changes):
    return planned(find(lab).text, Source("lab.yaml", lab, changes), form)


def fits(lab, form):
    try:
        return plan(lab, form)
    except LabError as error:
        return error


@pytest.mark.parametrize("lab", built_in())
def test_a_built_in_lab_is_exported_or_refused_with_the_reason(lab):
    found = fits(lab, "compose")
    if isinstance(found, LabError):
        assert all(": " in str(problem) for problem in found.problems)
        return
    tree = compose.compose(found, "image")
    assert set(tree["services"]) == {*members(found), JUDGE}
    for name, service in tree["services"].items():
        assert service.keys() <= SERVICE_KEYS
        assert "privileged" not in service
        assert set(service.get("cap_add", ())) <= {"NET_ADMIN", "NET_RAW"}
        assert (name == JUDGE) == ("networks" not in service)
    for network in tree["networks"].values():
        assert network.keys() <= NETWORK_KEYS
    assert yaml.safe_load(folder.rendered(tree)) == tree


def test_a_bridge_carries_no_pfc_and_a_veth_does():
    problem = str(fits("pfc-pause", "compose").problems[0])
    assert "01:80:c2:00:00:01" in problem
    assert "export clab" in problem
    assert clab.clab(plan("pfc-pause", "clab"), "image")["topology"]["links"]


@pytest.mark.parametrize(
    ("lab", "changes", "words"),
    [
        ("kernel-peer", {}, "guest"),
        ("two-hosts", {"defaults.host.mode": "datagram"}, "mode=frame"),
        ("two-hosts", {"topology.links[0].engine": "tc"}, "engine"),
    ],
)
def test_what_containers_cannot_do_is_refused_in_one_line_that_says_what_can(
    lab, changes, words
):
    with pytest.raises(LabError) as refused:
        plan(lab, **changes)
    assert any(words in str(problem) for problem in refused.value.problems)


@pytest.mark.parametrize("lab", [*READY_LABS, "bridge-pair", "srv6-path"])
def test_each_frame_of_each_link_is_recorded_by_one_container(lab):
    found = plan(str(READY / lab) if lab in READY_LABS else lab)
    assert not sniffed_ends(found)
    headers = [
        node_header(found, n.name, 0) for n in found.nodes if n.kind in {"host", "switch"}
    ]
    headers += [wire_header(found, link, 0) for link in found.links if link.wire]
    recorded = [port.name for header in headers for port in header.ports]
    assert sorted(recorded) == sorted(
        end for link in captured_links(found) for end in (link.a, link.b)
    )


def test_every_end_has_an_address_of_its_own_in_a_subnet_of_its_own():
    found = networks(plan(OVERLAY))
    assert len(found) == 4  # three links, and a wire in the middle of one
    ends = [end for network in found for end in network.ends]
    assert len({end.address for end in ends}) == len(ends)
    assert len({(end.member, end.interface) for end in ends}) == len(ends)
    for network in found:
        assert all(end.address in network.subnet for end in network.ends)
        assert network.subnet.subnet_of(DEFAULT_SUBNET)
    assert len({network.subnet6 for network in found}) == len(found)


def test_labs_with_subnets_of_their_own_have_those_of_ipv6_too():
    pools = (DEFAULT_SUBNET, ipaddress.IPv4Network("10.77.0.0/16"))
    first, second = ({n.subnet6 for n in networks(plan(OVERLAY), pool)} for pool in pools)
    assert not first & second


def test_the_rules_of_no_engine_keep_the_packets_of_a_lab_from_its_links():
    """An internal network drops foreign IPv4 on a host whose bridges filter, engine 27 IPv6."""
    tree = compose.compose(plan("two-hosts"), "image")
    for network in tree["networks"].values():
        assert network["enable_ipv6"]
        assert "internal" not in network


def test_a_subnet_too_small_for_the_lab_is_refused():
    with pytest.raises(LabError, match="4 links with 8 addresses"):
        networks(plan(OVERLAY), ipaddress.IPv4Network("10.0.0.0/28"))


def test_interface_names_are_there_for_engines_that_know_them_and_only_when_asked_for():
    own = plan("two-hosts")
    named = compose.compose(own, "image", interface_names=True)
    assert named["services"]["h0"]["networks"]["link-0"]["interface_name"] == "p0"
    assert "interface_name" not in folder.rendered(compose.compose(own, "image"))


def test_a_gateway_gets_its_device_and_the_parameters_of_a_router():
    service = compose.compose(plan(OVERLAY), "image")["services"]["g0"]
    assert service["devices"] == ["/dev/net/tun:/dev/net/tun"]
    assert service["sysctls"]["net.ipv6.conf.all.forwarding"] == "1"
    assert service["sysctls"]["net.ipv6.conf.all.disable_ipv6"] == "0"


def test_a_topology_for_containerlab_names_each_interface_as_the_plan_does():
    found = clab.clab(plan(OVERLAY, "clab"), "image")["topology"]
    assert found["links"][0]["endpoints"] == ["h0:p0", "g0:e0"]
    assert found["links"][1]["endpoints"] == ["g0:e1", "wire-g0-e1--g1-e1:a"]
    named = {end.partition(":")[0] for link in found["links"] for end in link["endpoints"]}
    assert named | {JUDGE} == set(found["nodes"])


@pytest.mark.parametrize("lab", READY_LABS)
def test_ready_files_are_what_export_writes(lab, tmp_path):
    own, source = plan(str(READY / lab)), Source("../lab.yaml", lab)
    text = (READY / lab / "lab.yaml").read_text()
    folder.write(
        tmp_path, folder.COMPOSE, compose.compose(own, "fabriclab"), text,
        compose.configs(own, source),
    )  # fmt: skip
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    for path in written:
        remedy = f"fabriclab export compose docker/labs/{lab} --out docker/labs/{lab}"
        assert (tmp_path / path).read_text() == (READY / lab / path).read_text(), remedy


def test_a_container_makes_the_plan_that_was_exported(tmp_path):
    source = Source("../lab.yaml", "two-hosts", {"seed": "99"})
    text = find("two-hosts").text
    exported = planned(text, source, "compose")
    folder.write(tmp_path, folder.COMPOSE, {}, text, compose.configs(exported, source))
    config, own = read(tmp_path / "config" / "h0.json")
    assert own == exported
    assert own.seed == 99
    assert config.interfaces == {"p0": "198.19.128.2"}


def test_a_second_export_takes_away_what_the_first_had_and_leaves_captures(tmp_path):
    source = Source("../lab.yaml", "two-hosts")
    config = ContainerConfig(source, "compose", "gone")
    folder.write(tmp_path, folder.COMPOSE, {}, "x", {"gone": config})
    (tmp_path / "captures" / "two-hosts-1").mkdir()
    folder.write(tmp_path, folder.COMPOSE, {}, "x", {"h0": config})
    assert [path.name for path in (tmp_path / "config").iterdir()] == ["h0.json"]
    assert (tmp_path / "captures" / "two-hosts-1").is_dir()


def exported(out, lab="two-hosts", text="a", form="compose", **how):
    config = ContainerConfig(Source("../lab.yaml", lab), form, JUDGE)
    folder.write(out, folder.COMPOSE, {}, text, {JUDGE: config}, **how)


@pytest.mark.parametrize("other", [{"lab": "rc-verbs", "text": "b"}, {"form": "clab"}], ids=str)
def test_what_another_lab_or_form_has_exported_is_overwritten_by_force_only(tmp_path, other):
    exported(tmp_path)
    kept = (tmp_path / "config" / "judge.json").read_bytes()
    with pytest.raises(LabError, match=r"judge\.json is not of an export of this lab.*--force"):
        exported(tmp_path, **other)
    assert (tmp_path / "config" / "judge.json").read_bytes() == kept
    assert (tmp_path / "lab.yaml").read_text() == "a"
    exported(tmp_path, **other, force=True)
    assert (tmp_path / "config" / "judge.json").read_bytes() != kept


def test_a_lab_changed_in_its_export_is_exported_again_from_there(tmp_path):
    exported(tmp_path)
    exported(tmp_path, text="changed")
    exported(tmp_path, lab="called-otherwise", text="changed")


@pytest.mark.parametrize("file", ["lab.yaml", folder.COMPOSE, "config/mine.json"])
def test_a_file_of_somebody_elses_stays(tmp_path, file):
    (tmp_path / "config").mkdir()
    (tmp_path / file).write_text("mine")
    with pytest.raises(LabError, match=file):
        exported(tmp_path)
    assert (tmp_path / file).read_text() == "mine"


def test_a_lab_may_be_exported_to_where_it_lies(tmp_path):
    (tmp_path / "lab.yaml").write_text("a")
    (tmp_path / "README.md").write_text("mine")
    exported(tmp_path)


@pytest.mark.parametrize(
    "content", [b"{}", b"\xff", b'{"source": {"lab": "nowhere", "name": "x"}}']
)
def test_a_config_that_is_none_is_refused_in_one_line(tmp_path, content):
    file = tmp_path / "h0.json"
    file.write_bytes(content)
    with pytest.raises(LabError):
        read(file)


def test_config_files_are_for_people_to_read():
    text = folder.as_json(ContainerConfig(Source("lab.yaml", "x"), "clab", "h0"))
    assert msgspec.json.decode(text, type=ContainerConfig).name == "h0"
    assert text.count(b"\n") > 5
