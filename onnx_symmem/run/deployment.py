"""Settings of a session as data beside a model, for those who make sessions without this package.

The document has every option with its value and the call that sets it in the C API; it can be read back. It
says of which plan it is, so that a document left over from another model is not followed. For Triton there is
the part of `config.pbtxt` that says the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.rewrite.reorder import delivery_of
from onnx_symmem.run.session import (
    ARENAS,
    LEVELS,
    ORDERS,
    PROVIDERS,
    SessionSettings,
    kept_for,
)

__all__ = [
    "SESSION_FILE",
    "TRITON_FILE",
    "deployment_files",
    "plan_digest",
    "read_settings",
    "settings_beside",
    "settings_document",
    "settings_of",
    "triton_config",
]

SESSION_FILE = ".session.json"
"""What follows the model's name in the name of the settings beside it."""
TRITON_FILE = ".config.pbtxt"
"""The same of the part of Triton's model configuration."""

_FORMAT = "onnx-symmem session settings"


def deployment_files(proto: onnx.ModelProto, provider: str) -> dict[str, str]:
    """What is written beside a planned model: contents by what follows its name."""
    model = LoadedModel(proto, None, None)
    settings = kept_for(model, provider)
    document = json.dumps(settings_document(settings, proto), indent=2) + "\n"
    files = {SESSION_FILE: document}
    if delivery_of(proto) == "anchors":
        files[TRITON_FILE] = triton_config(settings)
    return files


def plan_digest(proto: onnx.ModelProto) -> str:
    """A digest of the nodes of the main graph in the order of the file, by operator and outputs."""
    digest = hashlib.sha256()
    for node in proto.graph.node:
        digest.update("\0".join((node.op_type, *node.output, "\n")).encode())
    return digest.hexdigest()


def settings_beside(model: LoadedModel, provider: str | None = None) -> SessionSettings | None:
    """The settings written beside a model file, None where there are none for this plan and provider.

    Raises UsageError where they cannot be read.
    """
    if model.path is None:
        return None
    file = Path(f"{model.path}{SESSION_FILE}")
    if not file.is_file():
        return None
    document = _document(file)
    settings = _read(file, document)
    if _part(document, "model").get("plan") != plan_digest(model.proto):
        return None
    return None if provider not in (None, settings.provider) else settings


def settings_document(settings: SessionSettings, proto: onnx.ModelProto | None = None) -> dict[str, Any]:
    """The settings as data to be kept beside a model, for users of the C, C++ and C# APIs and of Triton.

    Under `session_options` each option has its value and the call that sets it in the C API, None where
    only Python can set it. `proto` is the model that they are for.
    """
    level = LEVELS[settings.optimization]
    pattern = "EnableMemPattern" if settings.mem_pattern else "DisableMemPattern"
    session_options = {
        "graph_optimization_level": (level, "SetSessionGraphOptimizationLevel"),
        "execution_mode": ("ORT_SEQUENTIAL", "SetSessionExecutionMode"),
        "enable_mem_pattern": (settings.mem_pattern, pattern),
        "intra_op_num_threads": (settings.intra_op_threads, "SetIntraOpNumThreads"),
        "execution_order": (ORDERS[settings.execution_order], None),
        "enable_mem_reuse": (settings.mem_reuse, None),
    }
    document: dict[str, Any] = {
        "format": _FORMAT,
        "version": 1,
        "provider": PROVIDERS[settings.provider],
        "provider_options": settings.provider_options(),
        "session_options": {
            name: {"value": value, "c_api": call} for name, (value, call) in session_options.items()
        },
        "config_entries": settings.config_entries(),
    }
    if settings.owns_cpu_arena:
        document["cpu_arena"] = {
            "arena_extend_strategy": 1,
            "c_api": "CreateArenaCfgV2; CreateAndRegisterAllocator on the environment, before the session",
        }
    differing = {
        "execution_order": settings.execution_order != "default",
        "enable_mem_reuse": not settings.mem_reuse,
    }
    python_only = [name for name, differs in differing.items() if differs]
    if python_only:
        document["only_from_python"] = {
            "options": python_only,
            "instead": "Optimize with --delivery anchors: the file then keeps its plan without these.",
        }
    if proto is not None:
        document["model"] = {"delivery": delivery_of(proto), "plan": plan_digest(proto)}
    document["triton"] = _triton(settings)
    return document


def _triton(settings: SessionSettings) -> dict[str, Any]:
    """The part that the ONNX Runtime backend of Triton can be told in config.pbtxt."""
    levels = {"none": 2, "basic": -1, "extended": 1}
    parameters = {
        "enable_mem_pattern": str(int(settings.mem_pattern)),
        "execution_mode": "0",
        "intra_op_thread_count": str(settings.intra_op_threads),
    }
    key = "session.use_device_allocator_for_initializers"
    if key in settings.config_entries():
        parameters[key] = settings.config_entries()[key]
    result: dict[str, Any] = {"parameters": parameters}
    if settings.optimization in levels:
        result["optimization.graph.level"] = levels[settings.optimization]
    options = {k: v for k, v in settings.provider_options().items() if k != "device_id"}
    if options:
        result["optimization.execution_accelerators.gpu_execution_accelerator"] = {
            "name": "cuda",
            "parameters": options,
        }
    return result


def triton_config(settings: SessionSettings) -> str:
    """The part of a model's `config.pbtxt` that sets the same for Triton's ONNX Runtime backend."""
    said = _triton(settings)
    lines = ['backend: "onnxruntime"']
    accelerator = said.get("optimization.execution_accelerators.gpu_execution_accelerator")
    level = said.get("optimization.graph.level")
    if level is not None or accelerator is not None:
        lines.append("optimization {")
        if level is not None:
            lines.append(f"  graph {{ level: {level} }}")
        if accelerator is not None:
            lines += ["  execution_accelerators {", "    gpu_execution_accelerator {"]
            lines.append(f"      name: {json.dumps(accelerator['name'])}")
            lines += [
                f"      parameters {{ key: {json.dumps(key)} value: {json.dumps(value)} }}"
                for key, value in accelerator["parameters"].items()
            ]
            lines += ["    }", "  }"]
        lines.append("}")
    lines += [
        f"parameters {{ key: {json.dumps(key)} value {{ string_value: {json.dumps(value)} }} }}"
        for key, value in said["parameters"].items()
    ]
    return "\n".join(lines) + "\n"


def read_settings(path: str | os.PathLike[str]) -> SessionSettings:
    """The settings in a file that holds a document; UsageError in one line where it does not."""
    file = Path(path)
    return _read(file, _document(file))


def _document(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from error


def _read(file: Path, document: Any) -> SessionSettings:
    try:
        return settings_of(document)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def settings_of(document: Any) -> SessionSettings:
    """The settings that a document describes; the inverse of `settings_document`."""
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise UsageError(f"not a document of session settings: expected format '{_FORMAT}'")
    options = _part(document, "session_options")
    provider = _named(PROVIDERS, document.get("provider"), "provider")
    arenas = {"arena_extend_strategy": ARENAS["power_of_two"], **_part(document, "provider_options")}
    arena = _named(ARENAS, arenas["arena_extend_strategy"], "arena_extend_strategy")
    if provider == "cpu":
        arena = "same_as_requested" if "cpu_arena" in document else "power_of_two"
    made = SessionSettings(
        provider=provider,
        optimization=_named(LEVELS, _value(options, "graph_optimization_level"), "graph_optimization_level"),
        execution_order=_named(ORDERS, _value(options, "execution_order"), "execution_order"),
        mem_pattern=_flag(options, "enable_mem_pattern"),
        mem_reuse=_flag(options, "enable_mem_reuse"),
        arena=arena,
        intra_op_threads=_number(_value(options, "intra_op_num_threads"), "intra_op_num_threads"),
        device=_number(arenas.get("device_id", 0), "device_id"),
    )
    own = made.config_entries()
    entries = _part(document, "config_entries")
    return replace(made, config=tuple((k, str(v)) for k, v in entries.items() if own.get(k) != str(v)))


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"'{name}' is no object")
    return found


def _value(options: Mapping[str, Any], name: str) -> Any:
    entry = options.get(name)
    if not isinstance(entry, dict) or "value" not in entry:
        raise UsageError(f"session option '{name}' has no value")
    return entry["value"]


def _named(names: Mapping[str, str], value: Any, what: str) -> str:
    for name, spelled in names.items():
        if value == spelled:
            return name
    raise UsageError(f"{what} = {value!r}: expected one of {', '.join(names.values())}")


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = _value(options, name)
    if not isinstance(value, bool):
        raise UsageError(f"session option '{name}' = {value!r}: expected true or false")
    return value


def _number(value: Any, what: str) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise UsageError(f"{what} = {value!r}: expected a number")
    return int(value)
