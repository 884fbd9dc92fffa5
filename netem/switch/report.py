"""The counters of a switch under the names of the field; all of them only grow.

    e0.RxOk, e0.TxDrp                       of port e0, as `show interfaces counters`
    e0.PfcRx3, e0.PfcTx3, e0.PausedNs3      PFC frames that named priority 3; how long it obeyed
    e0.q1.Pkts, e0.q1.DropPkts, ...         of queue 1, as `show queue counters` and its sisters
    e0.q1.EcnWouldMarkPkts                  ECN-capable frames that marking would hit, were it
                                            on; without thresholds, those that found no room
    e0.q1.EcnIncapablePkts                  frames that it hit and that are not ECN-capable
    e0.q1.TrimPkts, .TrimSent, .TrimDrop    trimmed = sent + refused by the trim queue
    e0.pg3.HeadroomWatermarkBytes, ...      of lossless class 3 where it comes in at e0
    BufferWatermarkBytes                    most shared memory ever used

A port, queue or class that nothing ever came to is left out. The watermarks are peaks: a pause
that was never sent is explained by SharedWatermarkBytes beside XoffBytes. Where frames of a
lossless class were lost, HeadroomNeededBytes says how much would have kept them.
"""

from collections.abc import Iterable, Iterator

from netem.switch.buffer import Pool
from netem.switch.pause import LosslessClass
from netem.switch.port import Port
from transports.clock import Ns

TRIM_TOTALS = ("TrimPkts", "TrimSent", "TrimDrop")


def counters_of(pool: Pool, ports: Iterable[Port], now: Ns) -> dict[str, int]:
    """Return the counters of memory, ports and queues."""
    found: dict[str, int] = {}
    totals = dict.fromkeys(TRIM_TOTALS, 0)
    for port in ports:
        for queue in port.queues:
            if not queue.offered:
                continue
            for name, value in queue.counters():
                found[f"{port.name}.q{queue.index}.{name}"] = value
                if name in totals:
                    totals[name] += value
        found |= counters_of_port(port, now)
        for lossless in port.lossless:
            if lossless is not None and (lossless.account.peak or lossless.drops):
                for name, value in _of_class(lossless):
                    found[f"{port.name}.pg{lossless.index}.{name}"] = value
    return {"BufferWatermarkBytes": pool.peak, **totals, **found}


def counters_of_port(port: Port, now: Ns) -> dict[str, int]:
    """Return the counters of a port itself that are not zero."""
    return {f"{port.name}.{name}": value for name, value in _of_port(port, now) if value}


def _of_port(port: Port, now: Ns) -> Iterator[tuple[str, int]]:
    yield "RxOk", port.rx_ok
    yield "RxDrp", port.rx_drops
    yield "TxOk", port.tx_ok
    yield "TxDrp", port.tx_drops
    yield "PfcIgnored", port.pfc_ignored
    yield "MacControl", port.mac_control
    for priority, frames in enumerate(port.pfc_received):
        yield f"PfcRx{priority}", frames
    for priority, frames in enumerate(port.pfc.sent):
        yield f"PfcTx{priority}", frames
        yield f"PausedNs{priority}", port.pauses.total(priority, now)


def _of_class(lossless: LosslessClass) -> Iterator[tuple[str, int]]:
    account = lossless.account
    yield "DropPkts", lossless.drops
    yield "DropBytes", lossless.drop_bytes
    yield "SharedWatermarkBytes", account.peak
    yield "XoffBytes", account.lowest_xoff
    yield "HeadroomBytes", account.plan.headroom
    yield "HeadroomWatermarkBytes", account.headroom_peak
    yield "HeadroomNeededBytes", account.needed
