"""Proof by running: original and result give the same outputs, bit by bit, on the same inputs.

Both run with one thread: some kernels add up in another order with more, and ScatterND loses updates.
Outputs of the original are kept as digests, so that never more than one run's outputs are in memory; only
where a digest differs is the original run again, to say how large the difference is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.shape_text import place_text
from onnx_symmem.graph.load import load_model
from onnx_symmem.run.baseline import baseline_settings
from onnx_symmem.run.inputs import Fill, generate_inputs, resolve_shape
from onnx_symmem.run.session import (
    ModelSource,
    SessionSettings,
    create_session,
    kept_for,
    label_of,
    run_session,
    unpacked,
)
from onnx_symmem.shapes.table import ModelShapes

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["Verification", "verify"]

_CHUNK = 1 << 20  # elements compared at a time


@dataclass(frozen=True, slots=True)
class Verification:
    """Outcome at one shape.

    `equal`: all outputs are equal bit by bit (NaN with the same bits is equal). Else `worst_absolute` is the
    largest difference, `worst_relative` the largest in proportion to the largest number of its output.
    `packed`: kernels might pack weights, as they do in a usual session.
    """

    shape: Mapping[str, int]
    outputs: int
    equal: bool
    worst_absolute: float = 0.0
    worst_relative: float = 0.0
    packed: bool = True


def verify(
    original: ModelSource,
    result: ModelSource,
    shapes: ModelShapes,
    at: Sequence[Mapping[str, int]],
    *,
    level: str = "extended",
    provider: str = "cpu",
    overrides: Mapping[str, Fill] | None = None,
    result_feeds: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    tolerance: float = 0.0,
    packing: bool = True,
) -> tuple[Verification, ...]:
    """Run both models at every shape of `at` on generated inputs, and compare.

    `shapes` are those of the original, which runs at the optimisation `level` that the result was made with.
    `result_feeds` go to the result only (a memory limit). Raises VerificationFailed at the first shape where
    an output differs by more than `tolerance`, relative to its largest number; 0 asks for equal bits. It
    names the first such output and holds the largest differences of all.
    """
    shapes_at = [resolve_shape(shapes, shape) for shape in at]
    before = replace(baseline_settings(level, provider), intra_op_threads=1)
    planned = load_model(result)
    after = replace(kept_for(planned, provider), intra_op_threads=1)
    if not packing:
        before, after = unpacked(before), unpacked(after)

    def feeds(shape: Mapping[str, int]) -> dict[str, np.ndarray]:
        return generate_inputs(shapes, shape, overrides, seed)

    session = create_session(original, before)
    names = [output.name for output in session.get_outputs()]
    expected = [_digests(session, names, feeds(shape), label_of(original)) for shape in shapes_at]
    del session
    session = create_session(result, after)
    missing = [n for n in names if n not in {o.name for o in session.get_outputs()}]
    if missing:
        raise VerificationFailed(f"output '{missing[0]}': the result has no such output")
    outcomes = []
    for shape, digests in zip(shapes_at, expected, strict=True):
        arrays = run_session(session, {**feeds(shape), **(result_feeds or {})}, names, label_of(result))
        wrong = [k for k, array in enumerate(arrays) if _digest(array) != digests[k]]
        outcome = Verification(shape, len(names), equal=not wrong, packed=packing)
        if wrong:
            outcome = _differences(
                outcome, original, before, feeds(shape), [names[k] for k in wrong],
                [digests[k] for k in wrong], [arrays[k] for k in wrong], tolerance,
            )  # fmt: skip
        outcomes.append(outcome)
        del arrays
    return tuple(outcomes)


def _digests(
    session: onnxruntime.InferenceSession, names: Sequence[str], feeds: Mapping[str, np.ndarray], label: str
) -> list[bytes]:
    return [_digest(array) for array in run_session(session, feeds, names, label)]


def _digest(value: Any) -> bytes:
    """Fingerprint of an output: type, dims and bits; lists and dicts item by item."""
    state = hashlib.blake2b(digest_size=16)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        state.update(f"{value.dtype}{value.shape}".encode())
        state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif isinstance(value, np.ndarray):
        state.update(repr((value.shape, value.tolist())).encode())
    elif isinstance(value, list | tuple):
        state.update(b"".join(map(_digest, value)))
    else:
        state.update(repr(value).encode())
    return state.digest()


def _differences(
    outcome: Verification,
    original: ModelSource,
    settings: SessionSettings,
    feeds: Mapping[str, np.ndarray],
    names: Sequence[str],
    digests: Sequence[bytes],
    arrays: Sequence[Any],
    tolerance: float,
) -> Verification:
    """Run the original again and measure the differences; raise where one is above the tolerance."""
    failed = ""
    where = place_text(outcome.shape)
    session = create_session(original, settings)
    wanted = run_session(session, feeds, names, label_of(original))
    again = [_digest(value) for value in run_session(session, feeds, names, label_of(original))]
    for name, digest, expected, array, repeated in zip(names, digests, wanted, arrays, again, strict=True):
        if not digest == _digest(expected) == repeated:
            raise VerificationFailed(
                f"output '{name}' {where}: the original itself gives other numbers when it runs again; "
                "a model with random operators cannot be verified by running"
            )
        if not (_numbers(expected) and _numbers(array)):
            raise VerificationFailed(f"output '{name}' {where}: the contents differ")
        if expected.shape != array.shape or expected.dtype != array.dtype:
            raise VerificationFailed(
                f"output '{name}' {where}: {array.dtype.name}{list(array.shape)} instead of "
                f"{expected.dtype.name}{list(expected.shape)}"
            )
        count, absolute, relative = _difference(expected, array)
        if not failed and (not tolerance or not relative <= tolerance):
            failed = (
                f"output '{name}' {where}: {count} of {array.size} numbers differ, by up to {absolute:.3g} "
                f"({relative:.3g} of the largest)"
            )
        outcome = replace(
            outcome,
            worst_absolute=max(outcome.worst_absolute, absolute),
            worst_relative=max(outcome.worst_relative, relative),
        )
    if failed:
        raise VerificationFailed(failed, outcome.worst_absolute, outcome.worst_relative)
    return outcome


def _numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind != "O"


def _difference(expected: np.ndarray, array: np.ndarray) -> tuple[int, float, float]:
    """(how many elements differ in bits, largest difference, the same over the largest expected number)."""
    count, absolute, largest, lost = 0, 0.0, 0.0, False
    for a, b in zip(_chunks(expected), _chunks(array), strict=True):
        bits = np.any(a.view(np.uint8).reshape(len(a), -1) != b.view(np.uint8).reshape(len(b), -1), axis=1)
        count += int(bits.sum())
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x)
        largest = max(largest, float(np.abs(x[finite]).max(initial=0.0)))
        # Where a NaN or an infinity stands on one side only, no tolerance can hold.
        lost = lost or bool(
            np.any(bits & ~(finite & np.isfinite(y)) & ~((x == y) | (np.isnan(x) & np.isnan(y))))
        )
        with np.errstate(invalid="ignore"):
            gap = np.abs(x - y)
        absolute = max(absolute, float(gap[np.isfinite(gap)].max(initial=0.0)))
    if lost:
        return count, np.inf, np.inf
    return count, absolute, absolute / largest if largest else (np.inf if absolute else 0.0)


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    flat = np.ascontiguousarray(array).reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        yield flat[start : start + _CHUNK]
