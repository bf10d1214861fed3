"""Planned: choose what to recompute or offload, in levels of rising memory pressure."""
