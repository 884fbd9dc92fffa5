"""Switches: for now the learning bridge that the simulator uses for kernel bridges."""
