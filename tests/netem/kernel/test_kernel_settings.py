"""Offloads by ioctl and parameters by file."""

import shutil
import subprocess

import pytest

from netem.kernel import sysctl
from netem.kernel.namespaces import control_socket
from netem.kernel.offloads import BYTE_ACCURATE, GROUPS, TRAINS, Offloads, command
from netem.kernel.run import KernelError, program_path, run
from tests.sandboxed import in_sandbox

pytestmark = pytest.mark.needs("netns")


def with_veth(body):
    """Call body(offloads) in a sandbox that has a veth called `va`."""

    def inner():
        run(("ip", "link", "add", "name", "va", "type", "veth", "peer", "name", "vb"))
        with control_socket() as control:
            return body(Offloads(control, "h0"))

    return in_sandbox(inner)


@pytest.mark.parametrize("settings", [BYTE_ACCURATE, TRAINS], ids=["byte-accurate", "trains"])
def test_every_feature_named_is_as_asked(settings):
    def write(offloads):
        offloads.write("va", settings)
        return offloads.read("va")

    found = with_veth(write)
    for group, on in settings.items():
        for name in set(GROUPS.get(group, (group,))) & set(found):
            available = not (on and name.startswith("tx-checksum-ipv"))
            assert found[name] == (on and available), name


def test_one_kind_of_settings_leaves_nothing_of_the_other():
    def write(offloads):
        offloads.write("va", TRAINS)
        before = offloads.read("va")
        offloads.write("va", BYTE_ACCURATE)
        offloads.write("va", TRAINS)
        return before, offloads.read("va")

    before, after = with_veth(write)
    # A group that nothing depends on stays off; the features of the setting itself are equal.
    differing = {name for name in before if before[name] != after[name]}
    assert not differing & {name for group in TRAINS for name in GROUPS.get(group, (group,))}


def test_what_this_kernel_does_not_know_is_off_and_no_error():
    def write(offloads):
        offloads.write("va", {"tx-of-the-future": False})
        return True

    assert with_veth(write)


def test_an_interface_that_is_not_there_is_a_kernel_error():
    def write(offloads):
        try:
            offloads.write("nonesuch", {"gro": False})
        except KernelError as error:
            return str(error)

    assert with_veth(write) == "ethtool -k nonesuch in h0: [Errno 19] No such device"


@pytest.mark.interop
@pytest.mark.needs("ethtool")
def test_ethtool_reads_what_we_wrote_and_takes_the_printed_command():
    def both(offloads):
        offloads.write("va", BYTE_ACCURATE)
        run(command("vb", BYTE_ACCURATE))
        ours, theirs = (
            subprocess.run(
                [shutil.which("ethtool", path=program_path()), "-k", name],
                capture_output=True, text=True, check=True,
            ).stdout.splitlines()[1:]
            for name in ("va", "vb")
        )  # fmt: skip
        return ours, theirs

    ours, theirs = with_veth(both)
    assert ours == theirs


def test_a_parameter_is_the_namespaces_own():
    name = "net/ipv6/conf/default/accept_dad"
    outside = sysctl.read(name)

    def write():
        sysctl.write(name, "2")
        return sysctl.read(name)

    assert in_sandbox(write) == "2"
    assert sysctl.read(name) == outside


def test_a_parameter_that_is_not_there_reads_as_none_and_is_an_error_to_write():
    def try_it():
        try:
            sysctl.write("net/ipv4/no_such", "1", where="h0")
        except KernelError as error:
            return sysctl.read("net/ipv4/no_such"), str(error)

    value, words = in_sandbox(try_it)
    assert value is None
    assert words.startswith("sh -c echo 1 > /proc/sys/net/ipv4/no_such in h0: ")
