"""The public Python functions: one for every verb of the command, by its name, and what they are made of.

    from onnx_symmem import api

    found = api.optimize("model.onnx", "planned.onnx", domain={"batch": (1, 64), "seq": (1, None)})
    print(api.run("planned.onnx", {"batch": 8, "seq": 512}).to_json()["measured_peak"])

A model is a path, an `onnx.ModelProto`, or a `gs.Graph`. A `domain` says what is known of the dims of its
inputs: a size, `(lo, hi)` or `(lo, None)` per name; what is not said is 1 and up. A shape, `at`, is a size
per name. Sizes are in bytes, times in seconds, unless the name of a field says otherwise. Results have the
fields of `--json` in `to_json()` (docs/json.md). Errors are those of `onnx_symmem.errors`, one line each.
`progress`, where it is taken, is called with a stage, the steps that are done and the steps in all (0: not
known).

Planning multiplies many small matrices, which threads do not make faster: with `OPENBLAS_NUM_THREADS=1` (or
the like of another BLAS) set before numpy is imported, other cores stay free, as they do under the command.
"""

from __future__ import annotations

from onnx_symmem.api.planning import Optimized, create_session, deploy, optimize
from onnx_symmem.api.reading import check, dims_by_name, fit, infer_shapes, memory_profile, report, shapes
from onnx_symmem.api.running import compare, doctor, measure, run

__all__ = [
    "Optimized",
    "check",
    "compare",
    "create_session",
    "deploy",
    "dims_by_name",
    "doctor",
    "fit",
    "infer_shapes",
    "measure",
    "memory_profile",
    "optimize",
    "report",
    "run",
    "shapes",
]
