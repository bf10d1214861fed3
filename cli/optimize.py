"""`onnx-symmem optimize`: write a model that needs less memory, proved and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.model_path import OutPath
from onnx_symmem.cli.options import (
    DimRange,
    budget_options,
    dim_option,
    domain_spec,
    ep_option,
    input_option,
    json_option,
    models_argument,
    ort_level_option,
    parse_shape,
    size_option,
)
from onnx_symmem.cli.output import answer, notify
from onnx_symmem.cli.progress import progress, ticker

__all__ = ["command"]


@click.command("optimize")
@models_argument
@click.option(
    "-o", "--output", "out", type=OutPath(), metavar="OUT",
    help="The file to write; weights kept outside go to OUT.data.",
)  # fmt: skip
@click.option(
    "--out-dir", type=OutPath(), metavar="FOLDER",
    help="For several models, or folders of models: where the results go, under the same names, with a "
    "summary that a later call goes on from.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, metavar="N",
    help="Models at once, with --out-dir.",
)  # fmt: skip
@click.option(
    "--parallel-backend", "backend", metavar="NAME",
    help="Backend of joblib that runs the jobs, such as dask or ray once registered. Default: processes.",
)  # fmt: skip
@dim_option
@ep_option
@ort_level_option
@input_option
@click.option(
    "--verify-at", "verify_at", multiple=True, metavar="NAME=VALUE,...",
    callback=lambda _ctx, _param, texts: tuple(parse_shape(t, "--verify-at") for t in texts),
    help="A shape at which original and result are run and compared; repeatable. Default: small shapes.",
)  # fmt: skip
@click.option(
    "--dispatch/--no-dispatch", default=True, show_default=True,
    help="Where no order is good at all shapes, write several; the shapes of the inputs choose.",
)  # fmt: skip
@click.option(
    "--time-budget", "time_budget", type=click.FloatRange(0), metavar="SECONDS",
    help="What the search may take on a usual core, counted in steps: the same budget gives the same model. "
    "0: heuristics only. Default: 20, less for large graphs.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N",
    help="Of the search and generated inputs.",
)  # fmt: skip
@click.option("--explain-order", "explain", is_flag=True, help="Say what pins the peak, and what would help.")
@size_option(
    "--memory-limit", required=False,
    words="Write schedules that repeat more and more; at run time the first that stays within SIZE runs. The "
    "limit is also an input of the model, symmem_memory_limit.",
)  # fmt: skip
@click.option(
    "--levels", type=click.IntRange(0, 8), default=None, metavar="N",
    help="Schedules besides the first, down to the lowest peak within --max-slowdown; without --memory-limit "
    "the limit is given at run time. Default 4.",
)  # fmt: skip
@click.option(
    "--max-slowdown", type=click.FloatRange(1.0), default=1.3, show_default=True, metavar="FACTOR",
    help="What a level may take of the time of the first, as modelled.",
)  # fmt: skip
@click.option(
    "--recompute/--no-recompute", "recompute", default=None,
    help="Whether levels run operators again.  [default: recompute]",
)  # fmt: skip
@click.option(
    "--offload/--no-offload", "offload", default=None,
    help="Whether levels send tensors to the host and back; needs --ep cuda, and is the default there. "
    "Such a model runs on ONNX Runtime only.",
)  # fmt: skip
@size_option(
    "--host-bandwidth", required=False,
    words="Bytes per second between device and host, with which the time of offloading is modelled. Default "
    "20GB.",
)  # fmt: skip
@budget_options
@click.option(
    "--delivery", type=click.Choice(["order", "anchors"]), default="order", show_default=True,
    help="What keeps the plan: the session, which only Python can tell to; or the file itself, for C++, C#, "
    "Java and Triton, under ONNX Runtime's own order and reuse of buffers.",
)  # fmt: skip
@click.option(
    "--deployment/--no-deployment", default=None,
    help="Write the session's settings beside the model, and a part of Triton's configuration. Default: "
    "with --delivery anchors.",
)  # fmt: skip
@click.option("--no-verify", is_flag=True, help="Do not run original and result before writing.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    models: tuple[Path, ...],
    out: Path | None,
    out_dir: Path | None,
    jobs: int,
    backend: str | None,
    dims: tuple[DimRange, ...],
    ep: str,
    ort_level: str,
    inputs: dict[str, str],
    verify_at: tuple[dict[str, int], ...],
    dispatch: bool,
    memory_limit: int | None,
    levels: int | None,
    max_slowdown: float,
    recompute: bool | None,
    offload: bool | None,
    host_bandwidth: int | None,
    counts: tuple[str, ...],
    reserve: int,
    time_budget: float | None,
    seed: int,
    explain: bool,
    delivery: str,
    deployment: bool | None,
    no_verify: bool,
    as_json: bool,
) -> Any:
    """Write a model that needs less memory at every shape.

    The graph is optimised by ONNX Runtime, put into the best order that is proved never to need more than
    before, and annotated with all dims. Nothing is written unless it gives the original's outputs, bit by
    bit. MODEL is an .onnx file with symbolic dims; several, or a folder of them, go to --out-dir.

    \b
    Examples:
      onnx-symmem optimize model.onnx -o planned.onnx --dim batch=1..64
      onnx-symmem optimize train.onnx -o levels.onnx --memory-limit 24GiB
      onnx-symmem optimize models/ --out-dir planned/ --jobs 4
    """
    if no_verify and verify_at:
        raise click.UsageError("--no-verify and --verify-at contradict each other", ctx)
    options: dict[str, Any] = {
        "domain": domain_spec(dims),
        "provider": ep,
        "ort_level": ort_level,
        "verify": not no_verify,
        "verify_at": verify_at,
        "inputs": inputs,
        "dispatch": dispatch,
        "memory_limit": memory_limit,
        "levels": levels,
        "max_slowdown": max_slowdown,
        "recompute": recompute,
        "offload": offload,
        "host_bandwidth": host_bandwidth,
        "counts": counts,
        "reserve": reserve,
        "time_budget": time_budget,
        "seed": seed,
        "explain": explain,
        "delivery": delivery,
        "deployment": deployment,
    }
    if out_dir is not None:
        if out is not None:
            raise click.UsageError("-o and --out-dir contradict each other", ctx)
        return _several(models, out_dir, options, jobs, backend, as_json)
    if out is None or len(models) > 1:
        raise click.UsageError(
            "Missing option '-o' / '--output'." if len(models) == 1 else "several models need --out-dir", ctx
        )
    from onnx_symmem import api

    with progress() as tell:
        found = api.optimize(models[0], out, progress=ticker(tell), **options)
    from onnx_symmem.report.text.optimization import show_optimization

    notify(found.figures.notices)
    answer(found.figures, as_json, lambda console: show_optimization(console, found.figures, ctx.obj.verbose))
    return 0


def _several(
    models: tuple[Path, ...],
    folder: Path,
    options: dict[str, Any],
    jobs: int,
    backend: str | None,
    as_json: bool,
) -> int:
    from onnx_symmem.cli.batch import Batch, optimize_each, targets

    from onnx_symmem.report.text.batch import show_batch

    pairs = targets(models, folder)
    outcomes = []
    with progress() as tell:
        tell.stage("optimising", total=len(pairs))
        for outcome in optimize_each(pairs, folder, options, jobs, backend):
            outcomes.append(outcome)
            tell.advance()
    batch = Batch(str(folder), tuple(outcomes))
    answer(batch, as_json, lambda console: show_batch(console, batch.to_json()))
    failed = [o for o in outcomes if o.code]
    if failed:
        click.echo(f"onnx-symmem: error: {len(failed)} of {len(outcomes)} models failed", err=True)
    return batch.code
