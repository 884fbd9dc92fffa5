"""`fabriclab labs`: which labs are built in."""

import click

from netem.cli import options, show


@click.command()
@options.json_option
@options.exit_codes
def command(as_json: bool) -> None:
    """List the built-in labs.

    Example:  fabriclab labs
    """
    from netem.lab.find import BUILT_IN, built_in, title

    rows = []
    for name in built_in():
        plan, _ = options.make_plan(name)
        rows.append(
            {
                "name": name,
                "title": title(name),
                "kinds": sorted({qp.kind for node in plan.nodes for qp in node.qps}),
            }
        )
    if as_json:
        options.print_json({"labs": rows})
        return
    show.table(
        "", ("lab", "speaks", "what it shows"),
        ((row["name"], ", ".join(row["kinds"]), row["title"]) for row in rows),
    )  # fmt: skip
    click.echo(f"\nEach has a README: {BUILT_IN}/LAB/README.md")
