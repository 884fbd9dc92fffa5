"""Verdicts on a capture: what in it breaks a clause, in which frame."""
