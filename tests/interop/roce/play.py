"""Our side of several runs, one after the other: a command of a host in a lab.

    python -m tests.interop.roce.play OURS4,OURS6 GUEST4,GUEST6 HOW RUN ...

HOW is what the link does to frames, RUN is str(runs.Run). Prints a line for each run. A wrong
byte makes it end with 1; what was sent again is no fault here.

One device plays all: a peer that lost our last ACK asks again while the next run goes on, and
is answered.
"""

import sys

import trio

from netem.verbs import open_device
from netem.verbs.neighbours import interface_of
from tests.interop.roce import examples, librdmacm, perftest
from tests.interop.roce.cable import GUEST, LIMIT_S, OURS
from tests.interop.roce.ours import End
from tests.interop.roce.runs import LOSES, Run, product


def module_of(run: Run):
    """Return the module that has our end of a tool."""
    family = run.tool.partition("_")[0]
    return {"ibv": examples, "ib": perftest}.get(family, librdmacm)


async def main(own: str, peer: str, how: str, names: list[str]) -> int:
    OURS.update(zip(OURS, own.split(","), strict=True))
    GUEST.update(zip(GUEST, peer.split(","), strict=True))
    End.patience = 17  # half a second, for here something is lost; and eight times that
    End.may_lose = how == LOSES
    End.linger_s = 2.5 if End.may_lose else 0.2  # rdma_cm's ACK timeout is 2.15 s
    # The lab gives its hosts addresses of one family; perftest talks IPv4 whatever it tests.
    words = ("ip", "address", "add", f"{OURS[4]}/24", "dev", interface_of(OURS[6]).name)
    await trio.run_process(words)
    by_name = {str(run): run for run in product()}
    is_right = True
    async with open_device(*OURS.values(), seed=1) as device:
        for run in map(by_name.__getitem__, names):
            before = sum(device.retransmissions.values())
            end = module_of(run).player(device, run)
            with trio.fail_after(LIMIT_S):
                await end.play()
            end.look()
            again = sum(device.retransmissions.values()) - before
            sys.stdout.write(f"{run}: {len(end.wrong)} wrong, {again} times back\n")
            sys.stdout.write("".join(f"  {line}\n" for line in end.wrong))
            sys.stdout.flush()
            is_right &= not end.wrong
        await trio.sleep(End.linger_s)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(trio.run(main, *sys.argv[1:4], sys.argv[4:]))
