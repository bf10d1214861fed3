"""Shape rules, one file per family of ops, registered with a decorator."""
