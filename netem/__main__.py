"""`python -m netem` is the `fabriclab` command."""

from netem.cli.main import main

main()
