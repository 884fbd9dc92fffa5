"""`fabriclab graph LAB`: a lab's picture."""

import click

from netem.cli import options


@click.command()
@options.lab_options
@click.option(
    "--as",
    "form",
    type=click.Choice(("text", "mermaid", "dot")),
    default="text",
    show_default=True,
    help="Text to read, Mermaid for Markdown, dot for Graphviz.",
)
@options.exit_codes
def command(
    *,
    lab: str,
    overrides: tuple[str, ...],
    nodes: str | None,
    seed: int | None,
    dilation: str | None,
    form: str,
) -> None:
    """Draw the nodes and links of a lab.

    Example:  fabriclab graph mylab.yaml --as dot | dot -Tsvg > mylab.svg
    """
    from netem.topology.graph import FORMS, graph

    plan, _ = options.make_plan(lab, overrides, seed, dilation, nodes=nodes)
    chosen = next(one for one in FORMS if one == form)
    click.echo(graph(plan, chosen), nl=False)
