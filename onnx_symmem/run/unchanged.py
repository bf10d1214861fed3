"""What ONNX Runtime would still change in a file, and which dims are not to be told so that it does not.

A file that ONNX Runtime optimised and saved is left alone when it is loaded again, as far as ONNX Runtime
knows no more than before. Dims that are written into it may be news. The graph is optimised once more; around
the nodes that are gone afterwards less is said of dims (rewrite/reticence.py), and further from them until
all nodes stay.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import onnx

from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.rewrite.reticence import Reticence, reticent
from onnx_symmem.run.offline import optimize_offline
from onnx_symmem.run.session import cuda_problem

__all__ = ["changed_nodes", "telling_dims"]

_ROUNDS = 4  # of going further from the nodes that are changed, each time twice as far


def changed_nodes(model: LoadedModel, level: str, provider: str = "cpu") -> tuple[int, ...]:
    """Nodes of the main graph that are no more when ONNX Runtime has optimised the model at a level."""
    where = "cpu" if provider == "cuda" and cuda_problem() else provider
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        left = load_model(optimize_offline(model, Path(folder), where, level)).proto.graph
    kept = {_identity(node) for node in left.node}
    gone = (
        k
        for k, node in enumerate(model.proto.graph.node)
        if node.op_type != "Constant" and _identity(node) not in kept
    )
    return tuple(gone)


def _identity(node: onnx.NodeProto) -> tuple[str, ...]:
    return (node.domain, node.op_type, *node.output)


def telling_dims(model: LoadedModel, level: str, provider: str = "cpu") -> Reticence:
    """What a file with all dims is not to say so that ONNX Runtime leaves it alone.

    Nothing where it does anyway, or where it changes the file whatever it is told.
    """
    graph = model.proto.graph
    makers = {name: node for node in graph.node for name in node.output if name}
    found = Reticence()
    steps = 1
    for _ in range(_ROUNDS):
        changed = changed_nodes(replace(model, proto=reticent(model.proto, found)), level, provider)
        if not changed:
            return found
        around = {name for k in changed for name in (*graph.node[k].input, *graph.node[k].output)} - {""}
        # Equal texts say that two sizes are equal, which may be enough for a fusion, too.
        silent = found.silent | (around & found.hidden)
        for _ in range(steps):
            around |= {name for made in around & makers.keys() for name in makers[made].input if name}
        told = found
        found = Reticence(found.hidden | around, silent)
        if found == told:
            break
        steps *= 2
    return Reticence()
