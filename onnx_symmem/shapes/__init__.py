"""Infer an expression for every dim of every tensor of a view."""
