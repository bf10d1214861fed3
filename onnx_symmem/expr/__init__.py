"""Algebra of sizes: exact integer expressions, what is known of their symbols, and what can be proved."""
