"""Several orders on the way to a file: emitted, their peaks read off, refused where deciding costs too much.

The guard compares what versions take in the very model that holds it. So versions are emitted twice: first to
see what each takes there, then with that to compare. What stays in memory of the guard while a version runs
is the same in both, as it does not depend on what is compared. That this is so is read off the second, too,
but where its graph is that of the first, which was bounded without slack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from onnx_symmem.errors import UnsupportedModel, VerificationFailed
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.shape_text import shape_text
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.peak import Peak
from onnx_symmem.order.dispatch import Dispatch, DispatchLimits, no_worse_than_one
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.schedule import schedule_of
from onnx_symmem.rewrite.choice import LEAST
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.rewrite.versions import Version, emit_versions
from onnx_symmem.run.written import WrittenPeaks, most_above, written_peaks
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["dispatched_model"]

_ONE_ORDER = "one order is written, though no order is good at all shapes"


def dispatched_model(
    base: LoadedModel,
    shapes: ModelShapes,
    dispatch: Dispatch,
    before: Peak,
    samples: Sequence[Mapping[str, int]],
    provider: str = "cpu",
    limits: DispatchLimits | None = None,
    floor: Sequence[int] = (),
    one: Peak | None = None,
) -> tuple[onnx.ModelProto | None, Dispatch | None, tuple[str, ...]]:
    """The model of several orders with the peaks that it has, or why there is none.

    `before` is the peak of what would have run, `samples` are the steering shapes, `floor` are bytes that no
    order is below there; `one` is the peak of the order that is written else, by default version 0.
    """
    domain, view, opsets = shapes.domain, shapes.graph.view, shapes.view.opsets
    planned = [
        Version(
            expand(view, schedule_of(v.candidate.order), opsets), v.peak.members, {"order": v.candidate.name}
        )
        for v in dispatch.versions
    ]
    try:
        proto = emit_versions(base.proto, shapes, planned, LEAST, rule=dispatch.rule)
        bound = int((versions_of(proto) or {}).get("overhead_bytes", 0))
        first, found = proto, _written(base, proto, domain, provider)
        seen = [p.members for p in found.versions]
        compared = [replace(v, peaks=members) for v, members in zip(planned, seen, strict=True)]
        proto = emit_versions(base.proto, shapes, compared, LEAST, rule=dispatch.rule, counted=True)
        if _bytes_of(proto.graph) != _bytes_of(first.graph):
            found = _written(base, proto, domain, provider)
    except UnsupportedModel as error:
        return None, None, (f"{_ONE_ORDER}: {error}",)
    if [p.members for p in found.versions] != seen:
        raise VerificationFailed("plan check: versions take other bytes than the guard compares")
    # What deciding adds to a version is all, unless before any starts more is taken than would have run.
    most, guard = dispatch.overhead + bound, Expr.const(found.guard)
    if not plan_le([guard], [m + most for m in before.members], domain).proved:
        most = max(most, found.guard)
    written = replace(
        dispatch,
        versions=tuple(replace(v, peak=p) for v, p in zip(dispatch.versions, found.versions, strict=True)),
        guard=0 if found.guard_is_below else found.guard,
        overhead=most_above(
            [(*members, guard) for members in seen],
            before.members,
            domain,
            samples,
            most,
        ),
    )
    share = (limits or DispatchLimits()).overhead
    needed = {s for member in before.members for s in member.symbols()}
    for shape in samples:
        if needed <= shape.keys() and written.overhead > share * before.at(shape):
            at = shape_text({name: shape[name] for name in shapes.input_symbols}, ", ")
            why = (
                f"deciding which to run can take {written.overhead:,} bytes more than what would have run, "
                f"which takes {before.at(shape):,} at {at}"
            )
            return None, None, (f"{_ONE_ORDER}: {why}",)
    one = one or dispatch.versions[0].peak
    if floor and not no_worse_than_one(written, one, samples, floor):
        why = "with what deciding takes, the worst of the steering shapes would be worse"
        return None, None, (f"{_ONE_ORDER}: {why}",)
    return proto, written, ()


def _bytes_of(graph: onnx.GraphProto) -> bytes:
    return graph.SerializeToString(deterministic=True)


def _written(base: LoadedModel, proto: onnx.ModelProto, domain: Domain, provider: str) -> WrittenPeaks:
    found = written_peaks(replace(base, proto=proto), domain, provider)
    if found is None:
        raise UnsupportedModel("not all bytes of a model that decides by shapes are known")
    return found
