"""What needs no network: completion queues, the message over TCP, what is refused."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from netem.verbs import (
    CompletionQueue,
    Endpoint,
    VerbsError,
    WcOpcode,
    WcStatus,
    WorkCompletion,
    open_device,
)
from netem.verbs.objects import CqOverrunError


def completion(number):
    return WorkCompletion(number, WcStatus.SUCCESS, WcOpcode.SEND, 0, 17)


def test_poll_gives_what_there_is_and_no_more_than_asked():
    cq = CompletionQueue(4)
    for number in range(3):
        cq.add(completion(number))
    assert [one.wr_id for one in cq.poll(2)] == [0, 1]
    assert [one.wr_id for one in cq.poll()] == [2]
    assert cq.poll() == []


async def test_a_full_completion_queue_says_what_it_lost_after_what_it_has():
    cq = CompletionQueue(1)
    cq.add(completion(1))
    cq.add(completion(2))
    assert (await cq.next()).wr_id == 1
    with pytest.raises(CqOverrunError, match="1 completions lost; capacity is 1"):
        await cq.next()


async def test_next_wakes_everyone_who_waits(nursery):
    cq, seen = CompletionQueue(4), []

    async def wait():
        seen.append((await cq.next()).wr_id)

    nursery.start_soon(wait)
    nursery.start_soon(wait)
    cq.add(completion(1))
    cq.add(completion(2))
    while len(seen) < 2:
        await trio.lowlevel.checkpoint()
    assert sorted(seen) == [1, 2]


# From a capture of ib_write_bw between two kernels: specs/rocev2.md, section 13.
PERFTEST = (
    b"0000:0001:00001b:913ff1:000014ab:0000562d1a612000:"
    b"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01:00000000:\0"
)


def test_endpoint_is_perftests_message():
    found = Endpoint(0x1B, 0x913FF1, "10.0.0.1", 0x562D1A612000, 0x14AB, 1)
    assert Endpoint.unpack(PERFTEST) == found
    assert found.pack() == PERFTEST


@given(
    st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 24) - 1), st.ip_addresses(),
    st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1),
)  # fmt: skip
def test_endpoint_is_read_as_written(qp_num, psn, address, addr, r_key):
    end = Endpoint(qp_num, psn, str(address), addr, r_key)
    read = Endpoint.unpack(end.pack())
    assert (read.qp_num, read.psn, read.addr, read.r_key) == (qp_num, psn, addr, r_key)


@given(st.binary(max_size=120))
def test_anything_else_is_no_endpoint(noise):
    with pytest.raises(VerbsError, match="keys"):
        Endpoint.unpack(noise)


@pytest.mark.parametrize(
    ("addresses", "mode", "why"),
    [
        ((), "frame", "wants an address"),
        (("192.0.2.1",), "datagram", "IPv6 only; use mode='frame'"),
        (("::1", "::2"), "datagram", "one address"),
    ],
)
async def test_what_no_mode_can_do_is_refused(addresses, mode, why):
    with pytest.raises(VerbsError, match=why):
        async with open_device(*addresses, mode=mode):
            pass
