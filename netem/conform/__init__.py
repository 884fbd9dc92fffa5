"""Conformance: the registry of clauses, cases that prove them, what runs and judges cases."""
