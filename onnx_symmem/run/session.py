"""Sessions of ONNX Runtime that run a model exactly as it was planned.

The `kept` settings are the only ones under which the order of the file is the order of execution and memory
in use is what the plan says: priority-based order, no optimisation at load, no memory pattern (it holds one
block per input shape), no buffer reuse (it keeps freed buffers for later), an arena that grows by what is
asked for instead of by powers of two. `shipped` are ONNX Runtime's own defaults.

On the CPU the growth of the arena can only be set on an allocator registered with the process. Registering
again replaces it for the sessions created afterwards, so every session made here gets an arena of its own,
which is freed with the session.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.helper

from onnx_symmem.errors import ModelFileError, RunFailed, UnsupportedModel, UsageError
from onnx_symmem.graph.load import LoadedModel, check_external_data
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.run.processor import need_blocks

if TYPE_CHECKING:
    import onnxruntime

__all__ = [
    "ModelSource",
    "SessionSettings",
    "create_session",
    "cuda_problem",
    "feeds_of",
    "kept",
    "kept_for",
    "label_of",
    "reason_of",
    "run_session",
    "shipped",
    "unpacked",
]

ModelSource = str | os.PathLike[str] | onnx.ModelProto | LoadedModel

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
ORDERS = {"priority": "PRIORITY_BASED", "default": "DEFAULT"}
ARENAS = {"same_as_requested": "kSameAsRequested", "power_of_two": "kNextPowerOfTwo"}

_ENV_ALLOCATORS = "session.use_env_allocators"
# How ONNX Runtime says that it has no such op, no kernel for it, or not its opset.
_NO_SUCH_OP = (
    "is not a registered function/op",
    "No Op registered for",
    "Could not find an implementation for",
    "is under development and support for this is limited",
)
_UNPACKED = ("session.disable_prepacking", "1")
_FOLDER = "session.model_external_initializers_file_folder_path"
_SILENT = 4  # log severity "fatal": what goes wrong arrives as an exception


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is created with; the presets are `kept` and `shipped`.

    provider: cpu or cuda. optimization (at load): none, basic, extended or all. execution_order: priority
    (the file's) or default (ONNX Runtime's depth-first order). arena: same_as_requested or power_of_two.
    intra_op_threads: 0 for ONNX Runtime's choice. device: number of the CUDA device. config: further
    session configuration entries. profile_prefix: where profiling files go, None for no profiling.
    """

    provider: str = "cpu"
    optimization: str = "none"
    execution_order: str = "priority"
    mem_pattern: bool = False
    mem_reuse: bool = False
    arena: str = "same_as_requested"
    intra_op_threads: int = 0
    device: int = 0
    config: tuple[tuple[str, str], ...] = ()
    profile_prefix: str | None = None

    def __post_init__(self) -> None:
        for what, value, legal in (
            ("provider", self.provider, PROVIDERS),
            ("optimization", self.optimization, LEVELS),
            ("execution order", self.execution_order, ORDERS),
            ("arena", self.arena, ARENAS),
        ):
            if value not in legal:
                raise UsageError(f"{what} '{value}' is not known; expected one of {', '.join(legal)}")

    @property
    def keeps_file(self) -> bool:
        """Whether the nodes of the file are the nodes that run."""
        return self.optimization == "none"

    @property
    def owns_cpu_arena(self) -> bool:
        """Whether a CPU arena is registered for the session, its growth being no session option."""
        return self.provider == "cpu" and self.arena == "same_as_requested"

    def config_entries(self) -> dict[str, str]:
        """All session configuration entries, the caller's last."""
        entries: dict[str, str] = {}
        if self.owns_cpu_arena:
            entries[_ENV_ALLOCATORS] = "1"
        if self.provider == "cuda" and not self.mem_pattern:
            # Without a memory pattern weights would be cut out of the arena, which then never fits.
            entries["session.use_device_allocator_for_initializers"] = "1"
        entries.update(self.config)
        return entries

    def provider_options(self) -> dict[str, str]:
        """Options of the execution provider."""
        if self.provider == "cpu":
            return {}
        options = {"device_id": str(self.device), "arena_extend_strategy": ARENAS[self.arena]}
        if self.arena == "same_as_requested":
            # Else every If branch that runs makes a stream and library handles of its own.
            options["use_ep_level_unified_stream"] = "1"
        return options

    def to_session_options(self) -> onnxruntime.SessionOptions:
        """The same as an `onnxruntime.SessionOptions`."""
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[self.optimization])
        options.execution_order = getattr(ort.ExecutionOrder, ORDERS[self.execution_order])
        # Parallel execution would switch off aliases and in-place operators altogether.
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.enable_mem_pattern = self.mem_pattern
        options.enable_mem_reuse = self.mem_reuse
        options.intra_op_num_threads = self.intra_op_threads
        options.log_severity_level = _SILENT
        for key, value in self.config_entries().items():
            options.add_session_config_entry(key, value)
        if self.profile_prefix is not None:
            options.enable_profiling = True
            options.profile_file_prefix = self.profile_prefix
        return options


def kept(provider: str = "cpu") -> SessionSettings:
    """Settings under which a planned file runs as planned."""
    return SessionSettings(provider=provider)


def kept_for(model: LoadedModel, provider: str = "cpu") -> SessionSettings:
    """The same for one model, which says in its metadata under which traversal it runs as planned.

    A model with anchors is planned with memory reuse.
    """
    return SessionSettings(
        provider=provider,
        execution_order=execution_order_of(model.proto),
        mem_reuse=delivery_of(model.proto) == "anchors",
    )


def shipped(provider: str = "cpu") -> SessionSettings:
    """Settings that ONNX Runtime uses when it is told nothing."""
    return SessionSettings(
        provider=provider,
        optimization="all",
        execution_order="default",
        mem_pattern=True,
        mem_reuse=True,
        arena="power_of_two",
    )


def unpacked(settings: SessionSettings) -> SessionSettings:
    """The settings with weights used as they are in the file.

    On the CPU, kernels lay many weights out anew when a session is made and keep them beside those of the
    file. Without that a session takes less memory and more time, and last bits of results may be others.
    """
    entries = tuple(entry for entry in settings.config if entry[0] != _UNPACKED[0])
    return replace(settings, config=(*entries, _UNPACKED))


_register = threading.Lock()


def create_session(
    model: ModelSource,
    settings: SessionSettings | None = None,
    options: onnxruntime.SessionOptions | None = None,
) -> onnxruntime.InferenceSession:
    """A session on a model (path, proto or LoadedModel) under `settings` (default: `kept()`).

    `options` replaces what `settings.to_session_options()` would give. Raises UnsupportedModel where ONNX
    Runtime does not know an op or its opset, RunFailed where it refuses the model, UsageError where CUDA is
    asked for and not there.
    """
    import onnxruntime as ort

    settings = settings or kept()
    options = options or settings.to_session_options()
    source = _source(model, options)
    label = label_of(model)
    if settings.provider == "cuda":
        _need_cuda()
    providers: list[Any] = [(PROVIDERS[settings.provider], settings.provider_options())]
    if settings.provider == "cuda":
        providers.append(PROVIDERS["cpu"])
    with _register if settings.owns_cpu_arena else contextlib.nullcontext():
        try:
            if settings.owns_cpu_arena:
                _register_cpu_arena()
            session = ort.InferenceSession(source, options, providers=providers, enable_fallback=0)
        except Exception as error:  # the exceptions of ONNX Runtime have no base class of their own
            reason = reason_of(error)
            if any(text in reason for text in _NO_SUCH_OP):
                raise UnsupportedModel(
                    f"{label}: this ONNX Runtime cannot run the model: {reason}"
                ) from error
            raise RunFailed(f"{label}: ONNX Runtime refused the model: {reason}") from error
    need_blocks(session.get_modelmeta().custom_metadata_map, label)
    if settings.provider == "cuda" and session.get_providers()[0] != PROVIDERS["cuda"]:
        raise UsageError(_no_cuda("ONNX Runtime could not load its CUDA provider"))
    return session


def run_session(
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, Any],
    names: Sequence[str] | None = None,
    label: str = "model",
) -> list[Any]:
    """One run; RunFailed in one line where ONNX Runtime breaks off.

    `feeds` are arrays or what `feeds_of` made of them. Arrays that come back share memory with the session's
    arena; drop them before the next run where memory matters.
    """
    wanted = list(names) if names is not None else [o.name for o in session.get_outputs()]
    types = {o.name: o.type for o in session.get_outputs()}
    try:
        texts = any(isinstance(f, np.ndarray) and f.dtype.kind in "OUS" for f in feeds.values())
        if not texts and all(types.get(name, "").startswith("tensor(") for name in wanted):
            return [_array(value) for value in session.run_with_ort_values(wanted, feeds_of(feeds))]
        return session.run(wanted, dict(feeds))
    except Exception as error:
        raise RunFailed(f"{label}: the run broke off: {reason_of(error)}") from error


def feeds_of(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as ONNX Runtime takes them; also types that numpy has not (bfloat16, 8-bit floats)."""
    import onnxruntime as ort

    values: dict[str, Any] = {}
    for name, array in feeds.items():
        if isinstance(array, ort.OrtValue) or array.dtype.kind in "OUS":
            values[name] = array  # strings have no other form
        elif array.dtype.kind == "V" or array.dtype.name in ("bfloat16", *_SMALL_FLOATS):
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            bits = np.ascontiguousarray(array).view(np.uint16 if array.itemsize == 2 else np.uint8)
            values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)
        else:
            values[name] = ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))
    return values


_SMALL_FLOATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def _array(value: onnxruntime.OrtValue) -> np.ndarray:
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    # numpy knows no bfloat16: its bits are read where they lie.
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()) if value.data_ptr() else b""
    kind = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
    return np.frombuffer(raw, kind).reshape(value.shape())


def label_of(model: ModelSource) -> str:
    """How messages name a model."""
    if isinstance(model, LoadedModel):
        return model.label
    if isinstance(model, onnx.ModelProto):
        return model.graph.name or "model"
    return os.fspath(model)


def _source(model: ModelSource, options: onnxruntime.SessionOptions) -> str | bytes:
    """What ONNX Runtime is given: a path, or the bytes and the folder where their weights lie."""
    if isinstance(model, onnx.ModelProto):
        return model.SerializeToString()
    if isinstance(model, LoadedModel):
        check_external_data(model)
        if model.folder is not None:
            options.add_session_config_entry(_FOLDER, model.folder)
        return model.proto.SerializeToString()
    path = Path(model)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such file")
    return str(path)


def _register_cpu_arena() -> None:
    import onnxruntime as ort

    where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(where, ort.OrtArenaCfg({"arena_extend_strategy": 1}))


def cuda_problem() -> str | None:
    """Why CUDA cannot be used here, None where nothing speaks against it."""
    import onnxruntime as ort

    if PROVIDERS["cuda"] not in ort.get_available_providers():
        return "the installed ONNX Runtime has no CUDA provider"
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed on this machine"
    return None


def _need_cuda() -> None:
    import onnxruntime as ort

    problem = cuda_problem()
    if problem is not None:
        raise UsageError(_no_cuda(problem))
    # Finds CUDA and cuDNN that were installed as Python packages; it prints what it misses.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        ort.preload_dlls()


def _no_cuda(problem: str) -> str:
    return f"provider 'cuda': {problem}; choose 'cpu', or install onnxruntime-gpu and its CUDA libraries"


_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_PLACE = re.compile(r"(?:/|[A-Za-z]:\\)?\S+\.(?:cc|h|cpp|hpp|cu|cuh):\d+ (?:[^()]*\([^()]*\)(?: const)? )?")


def reason_of(error: BaseException) -> str:
    """The message of an ONNX Runtime exception in one line, without places in its source."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = _PLACE.sub("", _STATUS.sub("", text)).strip()
    return text if len(text) <= 400 else text[:397] + "..."
