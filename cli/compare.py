"""`onnx-symmem compare`: measure two models at one shape, and compare their outputs."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.options import (
    at_option,
    ep_option,
    input_option,
    json_option,
    model_argument,
    ort_level_option,
)
from onnx_symmem.cli.output import answer
from onnx_symmem.cli.progress import progress, ticker

from onnx_symmem.errors import VerificationFailed

__all__ = ["command"]


def _finite(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if not (isfinite(value) and value >= 0):
        raise click.BadParameter(f"{value} is not a finite number, 0 or more")
    return value


@click.command("compare")
@model_argument("before")
@model_argument("after")
@at_option
@ep_option
@input_option
@click.option(
    "--tolerance", type=float, default=1e-3, show_default=True, callback=_finite, metavar="SHARE",
    help="Largest difference that counts as rounding, relative to the largest number of an output.",
)  # fmt: skip
@ort_level_option
@json_option
def command(
    before: Path,
    after: Path,
    at: dict[str, int],
    ep: str,
    inputs: dict[str, str],
    tolerance: float,
    ort_level: str,
    as_json: bool,
) -> Any:
    """Measure two models and compare their outputs.

    BEFORE runs as ONNX Runtime is shipped, then with ONNX Runtime's graph and order in a session that keeps
    the plan, AFTER in such a session, all on the same generated inputs. Ends with code 1 where outputs differ
    by more than rounding.

    \b
    Examples:
      onnx-symmem compare model.onnx planned.onnx --at batch=8,seq=512
      onnx-symmem compare model.onnx planned.onnx --at batch=8,seq=512 --ort-level basic --json
    """
    from onnx_symmem import api
    from onnx_symmem.report.text.measurements import show_comparison

    with progress() as tell:
        found = api.compare(
            before,
            after,
            at,
            provider=ep,
            inputs=inputs,
            tolerance=tolerance,
            ort_level=ort_level,
            progress=ticker(tell),
        )
    answer(found, as_json, lambda console: show_comparison(console, found))
    if not found.outputs.equal:
        raise VerificationFailed(found.outputs.reason)
