"""Benchmarks: the tables of the README and of docs/RESULTS.md come from here, run from the checkout."""
