"""Experiments that mirror published ones: labs, what is expected, and a page of results."""
