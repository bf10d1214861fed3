"""This package as a step of other tools, a module each; none is imported unless it is asked for."""
