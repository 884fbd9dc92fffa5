"""Spools, sniffing, the merge into one pcapng, and the run folder."""
