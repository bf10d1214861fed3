"""Figures -> the terminal: one module per verb, over a common layout."""
