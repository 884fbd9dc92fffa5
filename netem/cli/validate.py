"""`fabriclab validate LAB`: whether a lab file is right, and what it would build."""

import click

from netem.cli import options, show


@click.command()
@options.lab_options
@options.json_option
@options.exit_codes
def command(
    *,
    lab: str,
    overrides: tuple[str, ...],
    nodes: str | None,
    seed: int | None,
    dilation: str | None,
    as_json: bool,
) -> None:
    """Check a lab file; show what would be built, and MTU sums.

    Exit code 2 and one line per problem where the file is wrong.

    Example:  fabriclab validate mylab.yaml
    """
    from netem.topology.summary import summary

    plan, _ = options.make_plan(lab, overrides, seed, dilation, nodes=nodes)
    facts = summary(plan)
    if as_json:
        options.print_json(facts)
        return
    options.say_remarks(plan)
    click.echo(f"lab {facts.name}: seed {facts.seed}, dilation {facts.dilation}")
    show.table(
        "",
        ("port", "peer", "address", ">mtu", "sends"),
        ((p.name, p.peer, p.address, p.mtu, p.sends) for n in facts.nodes for p in n.ports),
    )
    flows = [
        (f.flow, f.transport, "; ".join(f.work), f.timeout, f.rnr_timer) for f in facts.flows
    ]
    if flows:
        show.table("", ("flow", "transport", "work", "timeout", "RNR timer"), flows)
        show.table(
            "",
            ("flow", "GID", "to GID", "classes"),
            ((f.flow, *f.gids, f.classes) for f in facts.flows),
        )
    classes = [(n.name, *one.split(", ", 1)) for n in facts.nodes for one in n.classes]
    if classes:
        show.table("", ("switch", "class", "does"), classes)
    sids = [(n.name, *one.split(" ", 1)) for n in facts.nodes for one in n.sids]
    if sids:
        show.table("", ("node", "SID", "behaviour"), sids)
    tunnels = [(n.name, one) for n in facts.nodes for one in n.tunnel]
    if tunnels:
        show.table("", ("gateway", "tunnel and peers"), tunnels)
    for path in facts.paths:
        led = f" by {', '.join(path.segments)}" if path.segments else ""
        click.echo(
            f"{path.source} to {path.target}{led}, {path.transport}: {path.sum}"
            f" of {path.mtu} at {path.smallest}"
        )
    for title, lines in (
        ("fault", facts.faults),
        ("change", facts.changes),
        ("event", facts.events),
        ("expect", facts.expectations),
    ):
        for line in lines:
            click.echo(f"{title} {line}")
