"""Small labs that the tests of this folder build, and what is then to be seen in them."""

from netem.kernel.namespaces import inside
from netem.kernel.run import run_json
from netem.kernel.sandbox import fork_nodes, hold
from netem.kernel.steps import execute, namespaces, steps
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from transports.clock import MS

MIXED = """
name: mixed
topology:
  nodes:
    h0: {kind: host, family: %s}
    h1: {kind: host, stack: kernel, family: %s}
    h2: {kind: host, mode: datagram}
    h3: {kind: host, mode: datagram}
    b0: {kind: bridge}
    b1: {kind: bridge}
  links:
    - endpoints: ["h0:p0", "b0:e0"]
    - endpoints: ["h1:p0", "b0:e1"]
    - endpoints: ["h2:p0", "b1:e0"]
    - endpoints: ["h3:p0", "b1:e1"]
    - {endpoints: ["b0:e2", "b1:e2"], delay: 1ms}
"""
MIXED_6 = MIXED % ("ipv6", "ipv6")
MIXED_4 = MIXED % ("ipv4", "ipv4")  # datagram mode is always IPv6
DATAGRAM_PAIR = """
name: pair
defaults: {link: {mtu: 4500}, host: {mode: datagram}}
topology:
  nodes: {h0: {kind: host}, h1: {kind: host}}
  links: [{endpoints: ["h0:p0", "h1:p0"]}]
transports: {t: {kind: rc, mtu: 4096}}
workload: [{op: write, transport: t, from: h0, to: h1, size: 64KiB}]
"""
FRAMES = DATAGRAM_PAIR.replace("mode: datagram", "mode: frame")
WIRE_DELAY = 1 * MS  # of MIXED's link between the bridges, which makes it a wire


def planned(text):
    return plan_lab(load_lab(text, name_hint="test", overrides={}))


def build(plan, *, taps=True):
    """Make the plan's namespaces and links in the present sandbox; return the pids."""
    pids = fork_nodes(dict.fromkeys(namespaces(plan), hold))
    execute(steps(plan, taps=taps), pids)
    return pids


def at(pid, make, *arguments, **keywords):
    """Make something, a socket say, in the network namespace of a process."""
    with inside(pid):
        return make(*arguments, **keywords)


def configuration(pid):
    """What `ip` says of a namespace, without what differs from one time to the next."""
    links = run_json(("ip", "-json", "addr"), pid)
    return {
        "links": sorted(
            (
                link["ifname"], link["mtu"], link["address"], link.get("master", ""),
                tuple(sorted(set(link["flags"]) - {"NO-CARRIER", "LOWER_UP"})),
                tuple((row["local"], row["prefixlen"]) for row in link["addr_info"]),
            )
            for link in links
        ),
        "routes": sorted(
            (row["dst"], row["dev"])
            for family in ("-4", "-6")
            for row in run_json(("ip", "-json", family, "route"), pid)
        ),
        "neighbours": sorted(
            (row["dst"], row["lladdr"], row["dev"], row["state"][0])
            for row in run_json(("ip", "-json", "neigh"), pid)
        ),
    }  # fmt: skip
