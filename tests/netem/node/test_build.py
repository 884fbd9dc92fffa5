"""What a node asks of its host before it opens its sockets."""

import resource

import pytest

from netem.node.build import OTHER_DESCRIPTORS, allow_descriptors


@pytest.fixture
def limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("soft", "sockets"), [(300, 1), (300, 100), (1000, 100)])
def test_a_node_may_open_a_socket_for_each_source_port(limit, soft, sockets):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limit))
    allow_descriptors(sockets)
    got, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert got == max(soft, sockets + OTHER_DESCRIPTORS)
    assert hard == limit


def test_no_node_asks_for_more_than_the_host_allows(limit):
    allow_descriptors(limit)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, limit)
