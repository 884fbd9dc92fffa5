"""The control protocol: requests and replies, and everything a bad client can try."""

from contextlib import suppress

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from netem.impair.layers import Layers
from netem.impair.model import Impairment, RandomLoss
from netem.node import control
from netem.node.client import NodeGoneError, NodeTimeoutError, RefusedError, connect
from netem.node.control import ControlServer, LineSplitter, listen
from netem.node.requests import (
    CALLS,
    MAX_REQUEST,
    ImpairmentChange,
    Release,
    Request,
    RequestError,
    Stats,
    Stop,
    fields_of,
    parse_id,
    parse_request,
)

PATIENCE_S = 5


async def answer(request: Request) -> dict[str, object]:
    match request:
        case Stats():
            return {"frames": 7}
        case Release(item=item) if item > 10:
            raise RequestError(f"item is {item}, legal is 0 to 10")
        case Stop():
            await trio.sleep_forever()
    return {}


@pytest.fixture
async def node(tmp_path, nursery):
    """A server at `node.path`."""
    server = ControlServer(answer)
    server.path = tmp_path / "h0.sock"
    nursery.start_soon(server.serve, listen(server.path))
    return server


async def raw(node) -> trio.SocketStream:
    return await trio.open_unix_socket(node.path)


async def reply(stream) -> dict:
    """Read exactly one line."""
    line = b""
    with trio.fail_after(PATIENCE_S):
        while not line.endswith(b"\n"):
            got = await stream.receive_some(1)
            assert got, f"hung up after {line!r}"
            line += got
    return msgspec.json.decode(line)


async def hung_up(stream) -> None:
    """Read what is left, to the end."""
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some(1 << 20):
            pass


async def test_a_reply_carries_the_id_and_the_fields_of_its_request(node):
    async with await raw(node) as stream:
        await stream.send_all(b'{"id": 3, "do": "stats"}\n{"id": 4, "do": "hello"}\n')
        assert await reply(stream) == {"id": 3, "ok": True, "frames": 7}
        assert await reply(stream) == {"id": 4, "ok": True}


async def test_a_request_may_arrive_in_pieces(node):
    async with await raw(node) as stream:
        for piece in (b'{"id":', b" 3,", b'"do":"stats"', b"}", b"\n"):
            await stream.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        assert (await reply(stream))["frames"] == 7


@pytest.mark.parametrize(
    ("line", "number", "reason"),
    [
        (b"{", None, "Input data was truncated"),
        (b"\xff\xfe\x00", None, "malformed"),
        (b"[1,2]", None, "Expected `object`"),
        (b'{"do":"stats"}', None, "id"),
        (b'{"id":-1,"do":"stats"}', None, "$.id"),
        (b'{"id":true,"do":"stats"}', None, "$.id"),
        (b'{"id":5}', 5, "do"),
        (b'{"id":5,"do":"reboot"}', 5, "legal are hello, start, stop"),
        (b'{"id":5,"do":"stats","colour":1}', 5, "colour"),
        (b'{"id":5,"do":"impair","on":"h0:p0","set":{"lossy":1}}', 5, "lossy"),
        (b'{"id":5,"do":"release","item":99}', 5, "legal is 0 to 10"),
        (b'{"id":5,"do":"release","item":1e400}', 5, "$.item"),
        pytest.param(b"[" * 60_000, None, "", id="nested"),
        pytest.param(b'{"id":' + b"9" * 60_000 + b"}", None, "", id="huge number"),
    ],
)
async def test_garbage_is_refused_in_one_line_and_the_connection_lives_on(
    node, line, number, reason
):
    async with await raw(node) as stream:
        await stream.send_all(line + b'\n{"id": 6, "do": "stats"}\n')
        refusal = await reply(stream)
        assert refusal["ok"] is False
        assert refusal["id"] == number
        assert reason in refusal["error"]
        assert "\n" not in refusal["error"]
        assert (await reply(stream))["id"] == 6


async def test_an_empty_line_is_no_request(node):
    async with await raw(node) as stream:
        await stream.send_all(b'\n  \n{"id": 6, "do": "stats"}\n')
        assert (await reply(stream))["id"] == 6


async def test_a_line_without_end_is_refused_once_and_skipped(node):
    async with await raw(node) as stream:
        await stream.send_all(b"x" * (3 * MAX_REQUEST) + b'\n{"id": 6, "do": "stats"}\n')
        refusal = await reply(stream)
        assert str(MAX_REQUEST) in refusal["error"]
        assert (await reply(stream))["id"] == 6
    assert node.counters["overlong_requests"] == 1


async def test_many_clients_are_served_at_once(node):
    async with trio.open_nursery() as nursery, connect(node.path) as busy:
        nursery.start_soon(busy.call, "stop")  # never answered: this client's affair only
        async with connect(node.path) as one, connect(node.path) as other:
            assert (await one.call("stats", timeout_s=PATIENCE_S))["frames"] == 7
            assert (await other.call("stats", timeout_s=PATIENCE_S))["frames"] == 7
        nursery.cancel_scope.cancel()


async def test_one_client_too_many_is_turned_away_and_counted(node, monkeypatch):
    monkeypatch.setattr(control, "MAX_CLIENTS", 1)
    async with connect(node.path) as first:
        await first.call("stats")
        async with connect(node.path) as second:
            with pytest.raises(NodeGoneError, match="h0"):
                await second.call("stats")
        await first.call("stats")
    assert node.counters["clients_turned_away"] == 1


async def test_events_go_to_those_who_asked(node):
    async with connect(node.path) as curious, connect(node.path) as other:
        await curious.call("hello", events=True)
        await other.call("hello")
        node.push({"event": "item_done", "item": 2})
        await other.call("stats")
        with trio.fail_after(PATIENCE_S):
            async for event in curious.events():
                assert event == {"event": "item_done", "item": 2}
                break


async def test_a_client_that_does_not_read_is_dropped_and_the_others_are_not(node, monkeypatch):
    monkeypatch.setattr(control, "MAX_BACKLOG", 1 << 20)
    async with await raw(node) as deaf, connect(node.path) as other:
        await deaf.send_all(b'{"id": 1, "do": "hello", "events": true}\n')
        await reply(deaf)
        with trio.fail_after(PATIENCE_S):
            while not node.counters["slow_clients_dropped"]:
                node.push({"event": "noise", "text": "x" * 60_000})
                await trio.lowlevel.checkpoint()
            assert (await other.call("stats"))["frames"] == 7
            await hung_up(deaf)
    assert node.counters["slow_clients_dropped"] == 1


async def test_a_client_that_vanishes_with_an_answer_on_its_way_harms_nobody(node):
    for _ in range(20):
        stream = await raw(node)
        await stream.send_all(b'{"id": 1, "do": "stats"}\n' * 500)
        await stream.aclose()
    async with connect(node.path) as client:
        assert (await client.call("stats", timeout_s=PATIENCE_S))["frames"] == 7


async def test_a_time_out_names_node_and_call(node):
    async with connect(node.path) as client:
        with pytest.raises(NodeTimeoutError, match=r"^h0: no answer to stop within 0.01 s$"):
            await client.call("stop", timeout_s=0.01)


async def test_a_refusal_names_node_and_call(node):
    async with connect(node.path) as client:
        with pytest.raises(RefusedError, match=r"^h0: release: item is 11, legal is 0 to 10$"):
            await client.call("release", item=11)


async def test_a_call_to_a_node_that_dies_fails_and_events_end(tmp_path):
    server = ControlServer(answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listen(tmp_path / "h7.sock"))
        async with connect(tmp_path / "h7.sock") as client:
            await client.call("stats")
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                with pytest.raises(NodeGoneError, match="h7: connection ended during stats"):
                    await client.call("stats")
                assert [event async for event in client.events()] == []


async def test_nobody_at_the_path_is_one_clear_line(tmp_path):
    with pytest.raises(NodeGoneError, match=r"^h3: no node at .*h3.sock: No such file"):
        async with connect(tmp_path / "h3.sock"):
            pass


async def test_connecting_waits_for_a_node_that_is_being_started(tmp_path, nursery):
    async def start_late():
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ControlServer(answer).serve, listen(tmp_path / "h0.sock"))

    nursery.start_soon(start_late)
    async with connect(tmp_path / "h0.sock", wait_s=PATIENCE_S) as client:
        await client.call("stats")


def test_the_socket_of_a_killed_node_is_replaced_and_that_of_a_live_one_is_not(tmp_path):
    with listen(tmp_path / "h0.sock"), pytest.raises(OSError, match="in use"):
        listen(tmp_path / "h0.sock")
    assert (tmp_path / "h0.sock").exists()
    listen(tmp_path / "h0.sock").close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    (tmp_path / "h0.sock").write_text("precious")
    with pytest.raises(OSError, match="in use"):
        listen(tmp_path / "h0.sock")
    assert (tmp_path / "h0.sock").read_text() == "precious"


def test_a_path_too_long_for_a_socket_says_so(tmp_path):
    with pytest.raises(OSError, match="at most 107 bytes"):
        listen(tmp_path / ("x" * 100) / "h0.sock")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_a_refusal(line):
    parse_id(line)
    with suppress(RequestError):
        parse_request(line)


@given(st.lists(st.binary(max_size=12)), st.integers(1, 7))
def test_lines_do_not_depend_on_how_the_stream_is_cut(pieces, size):
    stream = b"\n".join(pieces)
    want = [line if len(line) <= 8 else None for line in stream.split(b"\n")[:-1]]
    splitter = LineSplitter(8)
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    got = [line for chunk in chunks for line in splitter.feed(chunk)]
    # A line too long is reported as soon as that is certain, so perhaps before its end.
    assert got[: len(want)] == want
    assert got[len(want) :] in ([], [None])


def test_every_field_of_an_impairment_can_be_changed():
    fields = set(Impairment.__struct_fields__) - {"slot"}  # the lab file's, for engine: tc
    assert set(ImpairmentChange.__struct_fields__) == fields | {"down", "carrier"}
    assert set(CALLS) == {member.__struct_config__.tag for member in Request.__args__}


def test_a_partial_change_leaves_the_rest():
    """Field report I03: jitter, then loss; both are in force."""
    layers = Layers(Impairment(delay=5))
    for change in (ImpairmentChange(jitter=3), ImpairmentChange(loss=RandomLoss(0.1))):
        layers.lay(fields_of(change))
    assert layers.impairment == Impairment(delay=5, jitter=3, loss=RandomLoss(0.1))
    assert fields_of(ImpairmentChange(loss=None)) == {"loss": None}


@pytest.mark.parametrize(
    "change",
    [
        ImpairmentChange(loss=RandomLoss(1.001)),
        ImpairmentChange(loss=RandomLoss(-0.01)),
        ImpairmentChange(loss=RandomLoss(float("nan"))),
        ImpairmentChange(corrupt=2.0),
        ImpairmentChange(delay=-1),
        ImpairmentChange(rate=0),
        ImpairmentChange(limit=0),
        ImpairmentChange(gap=-1),
    ],
)
def test_values_that_mean_nothing_are_refused(change):
    """Field report I13: 0 and 100 % are ordinary values, 100.1 % and -1 are not."""
    with pytest.raises(RequestError, match="legal is"):
        fields_of(change)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_none_and_all_are_ordinary_probabilities(p):
    change = ImpairmentChange(loss=RandomLoss(p))
    assert fields_of(change) == {"loss": RandomLoss(p)}
