"""ONNX Runtime's own optimisation, done once and saved, so that the saved graph is the one that is planned.

At load time ONNX Runtime gives every fused node a new place in the order; only a file that needs no further
optimisation runs in the order it is written in. Level ALL lays convolutions out for the vectors of the
processor at hand (processor.py); what it makes runs on the CPU only, and on such processors only.
"""

from __future__ import annotations

from pathlib import Path

from onnx_symmem.errors import RunFailed, UsageError
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.run.session import SessionSettings, create_session

__all__ = ["OFFLINE_LEVELS", "optimize_offline"]

OFFLINE_LEVELS = ("basic", "extended", "all")

_SMALLEST_EXTERNAL = 1024  # bytes; smaller tensors (shapes, scalars) must stay readable in the file
_OUTSIDE = (
    ("session.optimized_model_external_initializers_file_name", "optimized.data"),
    ("session.optimized_model_external_initializers_min_size_in_bytes", str(_SMALLEST_EXTERNAL)),
)


def optimize_offline(
    model: LoadedModel, out_dir: Path, provider: str = "cpu", level: str = "extended", outside: bool = True
) -> Path:
    """Optimise `model` for a provider, save it into `out_dir`, return the path of the saved model.

    Larger weights are written by ONNX Runtime into one data file beside it, where they are to be `outside`;
    none passes through Python. Level none saves what ONNX Runtime makes of any model that it loads.
    Fusions at EXTENDED are those of the provider: the file then needs that provider. Raises RunFailed where
    ONNX Runtime refuses the model.
    """
    if level not in ("none", *OFFLINE_LEVELS):
        raise UsageError(f"offline level '{level}' is not known; expected one of {', '.join(OFFLINE_LEVELS)}")
    if level == "all" and provider != "cpu":
        raise UsageError("level 'all' is for one processor: it can only be had with the provider 'cpu'")
    settings = SessionSettings(
        provider=provider,
        optimization=level,
        execution_order="default",
        arena="power_of_two",
        # Nothing is run: laying weights out anew for the kernels would only cost time and memory.
        config=(("session.disable_prepacking", "1"), *(_OUTSIDE if outside else ())),
    )
    path = Path(out_dir) / "optimized.onnx"
    options = settings.to_session_options()
    options.optimized_model_filepath = str(path)
    create_session(model, settings, options)
    if not path.is_file():
        raise RunFailed(f"{model.label}: ONNX Runtime did not save the optimised model to {path}")
    return path
