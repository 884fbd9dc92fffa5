"""`engine: tc`: our words into tc's, and the kernel's integers back into ours.

Payloads are those that tc 6.1 was seen to send (netem.md, section 3). The sixteen cases of the
kernel's own tests of netem (tc-testing, qdiscs/netem.json) are told again in our words.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.impair.model import FourState, GilbertElliott, Impairment, RandomLoss, Slot
from netem.kernel import tc
from netem.kernel.qdisc import Qdisc, attributes, qdiscs, root
from netem.kernel.run import KernelError, run, start_batch
from netem.topology.engines import tc_refusals
from tests.sandboxed import in_sandbox
from transports.clock import MS, US, S


def u32(*values):
    return b"".join(value.to_bytes(4, "little") for value in values)


def attribute(kind, data):
    padding = bytes(-len(data) % 4)
    return (4 + len(data)).to_bytes(2, "little") + kind.to_bytes(2, "little") + data + padding


def netem(*qopt, **found):
    """Return TCA_OPTIONS from the six integers and attributes by their number (`a5=...`)."""
    return u32(*qopt) + b"".join(attribute(int(key[1:]), data) for key, data in found.items())


def slot(*values):
    sizes = 8, 8, 4, 4, 8, 8
    return b"".join(v.to_bytes(size, "little") for v, size in zip(values, sizes, strict=True))


NORMAL_SLOTS = Slot(distribution="normal", dist_delay=1 * MS, dist_jitter=100 * US)

# What was said to tc, what it sent (latency in ticks, limit, loss, gap, duplicate, jitter, then
# attributes), and the same in our words.
SENT = [
    ("delay 10ms", netem(156250, 1000, 0, 0, 0, 0), Impairment(delay=10 * MS)),
    (
        "delay 10ms 2ms 25%",
        netem(156250, 1000, 0, 0, 0, 31250, a1=u32(0x40000000, 0, 0)),
        Impairment(delay=10 * MS, jitter=2 * MS, delay_corr=0.25),
    ),
    ("loss 1%", netem(0, 1000, 0x028F5C29, 0, 0, 0), Impairment(loss=RandomLoss(0.01))),
    (
        "loss random 1% 25%",
        netem(0, 1000, 0x028F5C29, 0, 0, 0, a1=u32(0, 0x40000000, 0)),
        Impairment(loss=RandomLoss(0.01, 0.25)),
    ),
    (
        "loss 1% ecn",
        netem(0, 1000, 0x028F5C29, 0, 0, 0, a7=u32(1)),
        Impairment(loss=RandomLoss(0.01), ecn=True),
    ),
    (
        "loss state 1%",
        netem(
            0, 1000, 0, 0, 0, 0,
            a5=attribute(1, u32(0x028F5C29, 0xFD70A3D6, 0, 0, 0xFFFFFFFF)),
        ),
        Impairment(loss=FourState(0.01, 0.99)),
    ),
    (
        "loss state 1% 50% 10% 20% 0.5%",
        netem(
            0, 1000, 0, 0, 0, 0,
            a5=attribute(1, u32(0x028F5C29, 0x80000000, 0x1999999A, 0x0147AE14, 0x33333333)),
        ),
        Impairment(loss=FourState(0.01, 0.5, 0.1, 0.2, 0.005)),
    ),
    (
        "loss gemodel 1%",
        netem(0, 1000, 0, 0, 0, 0, a5=attribute(2, u32(0x028F5C29, 0xFD70A3D6, 0, 0))),
        Impairment(loss=GilbertElliott(0.01, 0.99)),
    ),
    (
        "loss gemodel 1% 10% 70% 0.1%",
        netem(
            0, 1000, 0, 0, 0, 0,
            a5=attribute(2, u32(0x028F5C29, 0x1999999A, 0x4CCCCCCD, 0x00418937)),
        ),
        Impairment(loss=GilbertElliott(0.01, 0.1, 0.7, 0.001)),
    ),
    (
        "corrupt 0.1% 10%",
        netem(0, 1000, 0, 0, 0, 0, a1=u32(0, 0, 0), a4=u32(0x00418937, 0x1999999A)),
        Impairment(corrupt=0.001, corrupt_corr=0.1, corrupt_from=0),
    ),
    ("duplicate 1%", netem(0, 1000, 0, 0, 0x028F5C29, 0), Impairment(duplicate=0.01)),
    (
        "delay 10ms reorder 25% 50% gap 5",
        netem(156250, 1000, 0, 5, 0, 0, a1=u32(0, 0, 0), a3=u32(0x40000000, 0x80000000)),
        Impairment(delay=10 * MS, reorder=0.25, reorder_corr=0.5, gap=5),
    ),
    (
        "delay 10ms reorder 25% 50%",
        netem(156250, 1000, 0, 1, 0, 0, a1=u32(0, 0, 0), a3=u32(0x40000000, 0x80000000)),
        Impairment(delay=10 * MS, reorder=0.25, reorder_corr=0.5),
    ),
    (
        "rate 8kbit 20",
        netem(0, 1000, 0, 0, 0, 0, a6=u32(1000, 20, 0, 0)),
        Impairment(rate=8000, overhead=20),
    ),
    (
        "rate 100gbit",
        netem(
            0, 1000, 0, 0, 0, 0,
            a8=(12_500_000_000).to_bytes(8, "little"), a6=u32(0xFFFFFFFF, 0, 0, 0),
        ),
        Impairment(rate=100_000_000_000),
    ),
    (
        "slot 800us 10ms packets 42 bytes 64k",
        netem(0, 1000, 0, 0, 0, 0, a12=slot(800_000, 10_000_000, 42, 65536, 0, 0)),
        Impairment(slot=Slot(800 * US, 10 * MS, max_packets=42, max_bytes=64 << 10)),
    ),
    (
        "slot distribution normal 1ms 100us",
        netem(0, 1000, 0, 0, 0, 0, a12=slot(0, 0, 0, 0, 1_000_000, 100_000)),
        Impairment(slot=NORMAL_SLOTS),
    ),
]  # fmt: skip


EACH_SENT = pytest.mark.parametrize(
    ("options", "ours"), [case[1:] for case in SENT], ids=[case[0] for case in SENT]
)


@EACH_SENT
def test_what_tc_sends_is_read_as_it_was_meant(options, ours):
    slots = ours.slot.distribution if ours.slot else ""
    assert tc.impairment(tc.decode_netem(options), slots=slots) == ours


@EACH_SENT
def test_what_tc_sends_is_what_we_want_it_to_send(options, ours):
    if not tc.needs_netem(ours):
        pytest.skip("a rate alone is tbf's")
    wanted = tc.wanted(ours, 1)
    assert tc.decode_netem(options) == wanted._replace(limit=1000)


def test_times_that_the_kernel_tells_in_nanoseconds_are_exact():
    exact = (10_000_001).to_bytes(8, "little")
    read = tc.decode_netem(netem(156250, 1000, 0, 0, 0, 156250, a10=exact, a11=exact))
    assert (read.latency, read.jitter) == (10_000_001, 10_000_001)


def test_a_time_is_what_its_ticks_hold():
    """1500 us are 23437 ticks of 64 ns: 32 ns less."""
    wanted = tc.wanted(Impairment(delay=1500 * US), 1)
    assert wanted.latency == 23437 * 64
    assert tc.impairment(wanted).delay == 1_499_968


# -- the sixteen cases of tc-testing -----------------------------------------------------------

CASES = [
    # cb28 create with default setting, 4502 delete, 0785 no class: nothing is no discipline
    pytest.param(Impairment(), "", id="cb28 4502 0785 nothing"),
    pytest.param(Impairment(delay=100 * MS), "delay 100000us", id="3449 delay"),
    pytest.param(
        Impairment(
            delay=100 * MS, jitter=10 * MS, distribution="normal",
            corrupt=0.01, corrupt_from=0,
        ),
        "delay 100000us 10000us 0% distribution normal corrupt 1%", id="3782 corrupt",
    ),
    pytest.param(
        Impairment(delay=100 * MS, jitter=10 * MS, distribution="normal", duplicate=0.01),
        "delay 100000us 10000us 0% distribution normal duplicate 1%", id="2b82 duplicate",
    ),
    pytest.param(
        Impairment(
            delay=100 * MS, jitter=10 * MS, distribution="pareto", loss=RandomLoss(0.01)
        ),
        "delay 100000us 10000us 0% distribution pareto loss 1%", id="a932 loss",
    ),
    pytest.param(
        Impairment(
            delay=100 * MS, jitter=10 * MS, distribution="paretonormal",
            loss=FourState(0.01, 0.99),
        ),
        "delay 100000us 10000us 0% distribution paretonormal loss state 1% 99% 0% 100% 0%",
        id="e01a loss state",
    ),
    pytest.param(
        Impairment(loss=GilbertElliott(0.01, 0.99)), "loss gemodel 1% 99% 100% 0%",
        id="ba29 gemodel",
    ),
    pytest.param(
        Impairment(delay=100 * MS, jitter=10 * MS, reorder=0.02, gap=100),
        "delay 100000us 10000us 0% reorder 2% gap 100", id="0492 reorder",
    ),
    pytest.param(
        Impairment(delay=1 * MS, rate=20_000), "delay 1000us rate 20000bit", id="7862 rate",
    ),
    pytest.param(
        Impairment(
            delay=100 * MS, jitter=10 * MS, distribution="normal", loss=RandomLoss(0.02)
        ),
        "delay 100000us 10000us 0% distribution normal loss 2%", id="5029 changed loss",
    ),
    pytest.param(
        Impairment(delay=200 * MS, jitter=10 * MS), "delay 200000us 10000us 0%",
        id="3785 replaced delay",
    ),
    pytest.param(
        Impairment(slot=Slot(800 * US, 10 * MS, max_packets=42, max_bytes=64 << 10)),
        "slot 800us 10000us packets 42 bytes 65536b", id="7235 slot",
    ),
    pytest.param(
        Impairment(slot=NORMAL_SLOTS), "slot distribution normal 1000us 100us",
        id="5439 slot from a table",
    ),
]  # fmt: skip


def said(ours):
    """Return what we say to tc behind `netem limit N`."""
    words = tc.words(ours)
    if not words:
        return ""
    assert words[:2] == ("netem", "limit")
    return " ".join(words[3:])


@pytest.mark.parametrize(("ours", "words"), CASES)
def test_a_case_of_tc_testing_in_our_words(ours, words):
    assert not list(tc_refusals(ours, 1))
    assert said(ours) == words


@pytest.mark.needs("netns", "netem_qdisc")
@pytest.mark.parametrize(("ours", "words"), CASES)
def test_a_case_of_tc_testing_is_read_back_equal(ours, words):
    assert in_sandbox(set_and_read, ours) == (tc.wanted(ours, 1), ours)


@pytest.mark.parametrize(
    ("ours", "why"),
    [
        # a089: a limit in packets, which is no word of ours
        (Impairment(delay=1 * MS, limit=300_000), "limit: the kernel's netem counts packets"),
        (Impairment(limit=300_000), "limit: the kernel's netem counts packets"),
        (Impairment(rate=10**9, delay=1 * MS, limit=300_000), "limit: the kernel's netem"),
        (Impairment(corrupt=0.1), "corrupt: tc flips bits of the Ethernet header too"),
        (Impairment(corrupt=0.1, corrupt_from=14), "corrupt: tc flips bits"),
        (Impairment(jitter=1 * MS, delay=1 * MS, keep_order=True), "keep_order: tc cannot"),
        (Impairment(duplicate=0.1, duplicate_corr=0.5), "duplicate_corr: tc loses it"),
        (Impairment(jitter=1 * MS, reorder=0.1), "reorder: tc wants a delay"),
        (Impairment(jitter=1 * MS, distribution="normal"), "distribution: tc wants a delay"),
        (Impairment(delay=275 * S), "delay: 275s at dilation 1 is 275s; tc has at most"),
        (Impairment(slot=Slot(1)), "slot.min_delay: 1ns at dilation 1 is 1ns; tc has whole"),
        (Impairment(delay=100), "delay: 100ns at dilation 1 is 100ns; tc has whole micro"),
        (Impairment(rate=1_000_001), "rate: 1.000001mbit at dilation 1 is no whole number"),
    ],
)
def test_what_tc_cannot_do_is_refused_and_never_approximated(ours, why):
    assert [line for line in tc_refusals(ours, 1) if line.startswith(why)]


def test_what_counts_is_the_wall():
    """I14: 274 s are the end, after the dilation."""
    ours = Impairment(delay=1 * S, rate=8_000_000)
    assert not list(tc_refusals(ours, 100))
    assert said_of(ours, 100) == "delay 100000000us rate 80000bit"
    assert list(tc_refusals(ours, 300))
    back = tc.impairment(tc.wanted(ours, 100), 100)
    assert (back.delay, back.rate) == (ours.delay, ours.rate)


def said_of(ours, dilation):
    return " ".join(tc.words(ours, dilation)[3:])


# -- a rate alone ------------------------------------------------------------------------------


def test_a_rate_alone_is_tbf_and_its_limit_is_in_bytes():
    assert tc.words(Impairment(rate=100_000_000, limit=100_000)) == (
        "tbf", "rate", "100000000bit", "burst", "3125b", "limit", "100000b",
    )  # fmt: skip
    assert tc.words(Impairment(rate=10_000_000, overhead=24), mtu=4500)[3:] == (
        "burst", "4546b", "limit", f"{4 << 20}b", "overhead", "24",
    )  # fmt: skip


def test_a_frame_always_fits_the_bucket():
    """One that does not would be dropped in silence."""
    words = tc.words(Impairment(rate=1_000_000), mtu=9000)
    assert int(words[words.index("burst") + 1][:-1]) >= 9000 + 14 + 8


def set_and_read(*ours, dilation=1):
    """Give an interface one impairment after the other; return what it has in the end."""
    start_batch(
        "ip", ("link add va type veth peer vb", "link set va up", "link set vb up")
    ).result()
    for each in ours:
        words = tc.words(each, dilation)
        lines = [" ".join(c) for c in tc.commands("va", root("va"), words)]
        if lines:
            start_batch("tc", lines).result()
    options = tc.decode(root("va"))
    shape = ours[-1].distribution
    return options, tc.impairment(options, dilation, distribution=shape)


RATES = [
    Impairment(rate=8, limit=2000),
    Impairment(rate=12_345_672, limit=64 << 10),
    Impairment(rate=50_000_000, limit=100_000, overhead=24),
    Impairment(rate=10_000_000_000, limit=1 << 20),
    Impairment(rate=400_000_000_000, limit=4 << 20),
]


@pytest.mark.needs("netns", "tbf_qdisc")
@pytest.mark.parametrize("ours", RATES)
def test_a_rate_is_read_back_equal_from_the_kernel(ours):
    assert in_sandbox(set_and_read, ours) == (tc.wanted(ours, 1), ours)


@pytest.mark.needs("netns", "tbf_qdisc")
def test_one_rate_after_the_other_and_none_at_last():
    options, back = in_sandbox(set_and_read, *RATES, Impairment())
    assert options is None
    assert back == Impairment()


@pytest.mark.needs("netns", "tbf_qdisc")
def test_a_rate_is_converted_by_the_dilation_and_back():
    def there_and_back():
        return set_and_read(Impairment(rate=400_000_000_000, limit=1 << 20), dilation=1000)

    options, back = in_sandbox(there_and_back)
    assert options.rate == 50_000_000
    assert back == Impairment(rate=400_000_000_000, limit=1 << 20)


# -- reading -----------------------------------------------------------------------------------


@pytest.mark.needs("netns")
def test_a_failed_read_is_an_error_and_never_nothing():
    """I05."""

    def read():
        with pytest.raises(KernelError, match="tc qdisc show dev nosuch: no interface"):
            qdiscs("nosuch")

    in_sandbox(read)


@pytest.mark.needs("netns")
def test_an_interface_without_a_discipline_has_none():
    def read():
        run(("ip", "link", "add", "va", "type", "veth", "peer", "vb"))
        run(("ip", "link", "set", "va", "up"))
        return root("va")

    assert in_sandbox(read) is None


@pytest.mark.needs("netns", "tbf_qdisc")
def test_what_went_through_is_counted():
    def count():
        start_batch("ip", ("link add va type veth peer vb", "link set va up")).result()
        words = ["tc", "qdisc", "add", "dev", "va", "root", "handle", "1:"]
        run([*words, *tc.words(Impairment(rate=1_000_000, limit=10_000))])
        return root("va")

    found = in_sandbox(count)
    assert isinstance(found, Qdisc)
    assert (found.kind, found.handle >> 16, found.dropped) == ("tbf", 1, 0)


def test_a_discipline_of_somebody_else_is_not_taken_for_ours():
    with pytest.raises(tc.NotOursError, match="there is a htb"):
        tc.decode(Qdisc("htb", 0, 0, b""))


@given(st.binary(max_size=60))
def test_any_attributes_at_all_are_read_without_an_error(data):
    attributes(data)
