"""Measured figures, each beside its ceiling of the same run."""
