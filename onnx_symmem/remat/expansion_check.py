"""Proof that an expanded graph gives, value by value, what its base gives; independent of how it was made.

Instances stand for base values, and then every node has to be its base node, reading instances of what that
reads; sorted; all nodes there, and outputs first instances.
"""

from __future__ import annotations

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.graph.view import NODE
from onnx_symmem.remat.expansion import SIZE, Expansion
from onnx_symmem.remat.schedule import OFFLOAD, RUN, never_again

__all__ = ["check_expansion"]


def check_expansion(expansion: Expansion) -> None:
    """Raise VerificationFailed unless the expanded graph gives what its base gives."""
    base, view = expansion.base, expansion.view()
    value_of = [i.value for i in expansion.instances]
    if len({v.name for v in view.values}) != len(view.values):
        raise _wrong("two instances have one name")
    made = {v.index for v in view.values if v.kind != NODE}
    host = {k for k, i in enumerate(expansion.instances) if i.on_host}
    ran: set[int] = set()
    for step, node in zip(expansion.steps, view.nodes, strict=True):
        missing = next((i for i in node.reads() if i not in made), None)
        if missing is not None:
            raise _wrong(f"{node.label()} reads '{view.values[missing].name}' before it is made")
        if any(i in made for i in node.outputs if i >= 0):
            raise _wrong(f"{node.label()} makes what is there already")
        made.update(i for i in node.outputs if i >= 0)
        reads = [value_of[i] if i >= 0 else -1 for i in node.inputs]
        makes = [value_of[i] if i >= 0 else -1 for i in node.outputs]
        if step.kind == RUN:
            model = base.nodes[step.index]
            same = (node.op, node.domain, node.attributes) == (model.op, model.domain, model.attributes)
            wanted = [v if k < len(makes) and makes[k] >= 0 else -1 for k, v in enumerate(model.outputs)]
            if not same or reads != list(model.inputs) or makes != wanted:
                raise _wrong(f"{node.label()} is not the node it repeats")
            if sorted(value_of[i] for i in node.captured) != list(model.captured):
                raise _wrong(f"{node.label()} captures other values than the node it repeats")
            if step.index in ran and never_again(base, model):
                raise _wrong(f"{node.label()} runs twice: {never_again(base, model)}")
            ran.add(step.index)
            if any(i in host for i in node.reads()):
                raise _wrong(f"{node.label()} reads the host's memory")
        elif step.kind != SIZE and (reads != makes or (node.outputs[0] in host) != (step.kind == OFFLOAD)):
            raise _wrong(f"{node.label()} moves one value and makes another")
    if len(ran) != len(base.nodes):
        raise _wrong(f"{len(base.nodes) - len(ran)} nodes never run")
    if view.outputs != base.outputs:
        raise _wrong("it has other outputs")


def _wrong(what: str) -> VerificationFailed:
    return VerificationFailed(f"schedule check: {what}; nothing was written, please report this model")
