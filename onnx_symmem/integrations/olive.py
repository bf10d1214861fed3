"""`optimize` as a pass of Olive (extra `olive`).

Olive takes passes from a package configuration, a JSON file that names their classes:

    python -m onnx_symmem.integrations.olive > olive_package.json
    olive run --config run.json --package-config olive_package.json

The file is that of the installed Olive, with this pass, OnnxSymmem, added. Models that leave a workflow run
in sessions of anybody, so the plan is delivered by anchors unless the configuration says otherwise.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    from olive.hardware import AcceleratorSpec
    from olive.model import ONNXModelHandler
    from olive.model.utils import resolve_onnx_path
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.pass_config import BasePassConfig, PassConfigParam
except ImportError as error:
    raise ImportError(
        f"onnx_symmem.integrations.olive needs Olive ({error}): pip install 'onnx-symmem[olive]'"
    ) from error

from onnx_symmem.api import optimize
from onnx_symmem.errors import UsageError
from onnx_symmem.run.deployment import SESSION_FILE, TRITON_FILE
from onnx_symmem.run.session import PROVIDERS

__all__ = ["OnnxSymmem", "package_config"]

# Name -> type, default, words; names, defaults and meaning are those of `onnx_symmem.optimize`.
_PARAMETERS: Mapping[str, tuple[Any, Any, str]] = {
    "domain": (
        dict[str, int | list[int | None]] | None,
        None,
        'What is known of dims of the inputs: a size, [lo, hi] or [lo, null] each, e.g. {"batch": [1, 64]}.',
    ),
    "ort_level": (
        str,
        "extended",
        "Graph optimisations of ONNX Runtime before planning: none, basic, extended.",
    ),
    "verify": (bool, True, "Run original and result, and require equal bits."),
    "verify_at": (list[dict[str, int]], [], "Shapes to do that at; default: small ones, found by trying."),
    "inputs": (dict[str, str] | None, None, "How to fill inputs for that, e.g. randint:0:100, by name."),
    "delivery": (
        str,
        "anchors",
        "What keeps the plan: anchors (the file, anywhere) or order (create_session).",
    ),
    "dispatch": (bool, True, "With delivery order: write several orders where none is good at all shapes."),
    "memory_limit": (int | None, None, "Bytes: write levels that recompute."),
    "levels": (int | None, None, "How many of these at most."),
    "max_slowdown": (float, 1.3, "How many times as slow as the first one the last may be, as modelled."),
    "time_budget": (
        float | None,
        None,
        "Seconds on a usual core that the search may take, counted in steps.",
    ),
    "seed": (int, 0, "Of the search and of generated inputs."),
}


class OnnxSymmem(Pass):
    """Less memory at every shape: the nodes in the best order that is proved, with all dims."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        return {
            name: PassConfigParam(type_=type_, default_value=default, description=words)
            for name, (type_, default, words) in _PARAMETERS.items()
        }

    @staticmethod
    def is_accelerator_agnostic(accelerator_spec: AcceleratorSpec) -> bool:
        """What works in place differs per provider, and so do plans."""
        return False

    def _run_for_config(
        self, model: ONNXModelHandler, config: BasePassConfig, output_model_path: str
    ) -> ONNXModelHandler:
        if not isinstance(model, ONNXModelHandler):
            raise UsageError(f"OnnxSymmem plans ONNX models, not {type(model).__name__}; convert it before")
        out = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        options = {name: getattr(config, name) for name in _PARAMETERS}
        optimize(model.model_path, out, provider=_provider(self.accelerator_spec), **options)
        # Olive hands on files that a model is said to have beside it.
        beside = [out.with_name(out.name + ending) for ending in (SESSION_FILE, TRITON_FILE)]
        attributes = dict(model.model_attributes or {})
        files = [
            *(attributes.get("additional_files") or ()),
            *(str(file) for file in beside if file.exists()),
        ]
        if files:
            attributes["additional_files"] = sorted(files)
        has_data = out.with_name(out.name + ".data").exists()
        return ONNXModelHandler(
            model_path=str(out.parent if has_data else out),
            onnx_file_name=out.name if has_data else None,
            inference_settings=_unoptimised(model.inference_settings),
            model_attributes=attributes or None,
        )


def _provider(spec: AcceleratorSpec) -> str:
    wanted = str(spec.execution_provider or PROVIDERS["cpu"])
    for name, provider in PROVIDERS.items():
        if wanted == provider:
            return name
    raise UsageError(f"OnnxSymmem plans for {', '.join(PROVIDERS.values())}, not for {wanted}")


def _unoptimised(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings of Olive's own sessions: what they would change at load is done already."""
    found = dict(settings or {})
    found["session_options"] = {**(found.get("session_options") or {}), "graph_optimization_level": 0}
    return found


def package_config() -> dict[str, Any]:
    """The package configuration of the installed Olive, with this pass."""
    found: dict[str, Any] = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text("utf-8"))
    found["passes"][OnnxSymmem.__name__] = {
        "module_path": f"onnx_symmem.integrations.olive.{OnnxSymmem.__name__}",
        "supported_providers": sorted(PROVIDERS.values()),
        "supported_accelerators": ["cpu", "gpu"],
        "supported_precisions": ["*"],
        "supported_algorithms": [],
        "supported_quantization_encodings": [],
    }
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(package_config(), indent=2) + "\n")
