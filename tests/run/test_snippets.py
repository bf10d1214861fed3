"""Code for sessions elsewhere: Python's runs, C++'s compiles, and Triton's part loads in a text parser."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from onnx_symmem.run.deployment import triton_config
from onnx_symmem.run.session import SessionSettings, kept, shipped
from onnx_symmem.run.snippets import LANGUAGES, snippet
from tests.run.test_delivery import two_towers

ANCHORED = SessionSettings(execution_order="default", mem_reuse=True)
ON_CUDA = replace(ANCHORED, provider="cuda")

# The calls of the documented C++ API that snippets may make, with its signatures and nothing behind them.
HEADER = """
#pragma once
#include <cstddef>
#include <stdexcept>
#define ORTCHAR_T char
enum GraphOptimizationLevel { ORT_DISABLE_ALL = 0, ORT_ENABLE_BASIC = 1, ORT_ENABLE_EXTENDED = 2,
                              ORT_ENABLE_ALL = 99 };
enum ExecutionMode { ORT_SEQUENTIAL = 0, ORT_PARALLEL = 1 };
enum OrtAllocatorType { OrtDeviceAllocator = 0, OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeDefault = 0 };
struct OrtStatus; struct OrtMemoryInfo; struct OrtArenaCfg; struct OrtCUDAProviderOptionsV2 {};
struct OrtApi {
  OrtStatus* (*CreateCUDAProviderOptions)(OrtCUDAProviderOptionsV2** out);
  OrtStatus* (*UpdateCUDAProviderOptions)(OrtCUDAProviderOptionsV2*, const char* const* keys,
                                          const char* const* values, size_t count);
  void (*ReleaseCUDAProviderOptions)(OrtCUDAProviderOptionsV2*);
};
namespace Ort {
const OrtApi& GetApi() noexcept;
void ThrowOnError(OrtStatus*);
struct MemoryInfo {
  static MemoryInfo CreateCpu(OrtAllocatorType, OrtMemType);
  operator OrtMemoryInfo*() noexcept;
};
struct ArenaCfg { ArenaCfg(size_t, int, int, int); operator OrtArenaCfg*() noexcept; };
struct Env { Env& CreateAndRegisterAllocator(const OrtMemoryInfo*, const OrtArenaCfg*); };
struct SessionOptions {
  SessionOptions();
  SessionOptions& SetIntraOpNumThreads(int);
  SessionOptions& SetGraphOptimizationLevel(GraphOptimizationLevel);
  SessionOptions& SetExecutionMode(ExecutionMode);
  SessionOptions& EnableMemPattern();
  SessionOptions& DisableMemPattern();
  SessionOptions& AddConfigEntry(const char*, const char*);
  SessionOptions& AppendExecutionProvider_CUDA_V2(const OrtCUDAProviderOptionsV2&);
};
struct Session { Session(const Env&, const ORTCHAR_T*, const SessionOptions&); };
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("settings", [ANCHORED, ON_CUDA, shipped()])
def test_cpp_compiles(settings: SessionSettings, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime_cxx_api.h").write_text(HEADER)
    code = tmp_path / "planned.cpp"
    code.write_text(snippet("cpp", settings, "planned.onnx"))
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-fsyntax-only", f"-I{tmp_path}", str(code)]
    subprocess.run(command, check=True)


def test_python_makes_the_same_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(two_towers(), "planned.onnx")
    settings = replace(ANCHORED, intra_op_threads=2)
    names: dict[str, object] = {}
    exec(snippet("python", settings, "planned.onnx"), names)  # noqa: S102 - our own code is tested
    made, wanted = names["options"], settings.to_session_options()
    assert isinstance(made, ort.SessionOptions)
    assert isinstance(names["session"], ort.InferenceSession)
    for option in (
        "graph_optimization_level", "execution_mode", "execution_order", "enable_mem_pattern",
        "enable_mem_reuse", "intra_op_num_threads",
    ):  # fmt: skip
        assert getattr(made, option) == getattr(wanted, option), option
    for key, value in settings.config_entries().items():
        assert made.get_session_config_entry(key) == value


def model_config() -> type:
    """The part of Triton's ModelConfig that is written, as its model_config.proto declares it."""
    file = descriptor_pb2.FileDescriptorProto(name="model_config.proto", package="inference", syntax="proto3")

    def message(parent: object, called: str, /, **fields: tuple[str, bool]) -> descriptor_pb2.DescriptorProto:
        made = parent.add(name=called)  # type: ignore[attr-defined]
        for number, (field, (kind, repeated)) in enumerate(fields.items(), 1):
            entry = made.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in ("string", "int32"):
                entry.type = {"string": 9, "int32": 5}[kind]
            else:
                entry.type, entry.type_name = 11, f".inference.{kind}"
        return made

    def map_of(owner: descriptor_pb2.DescriptorProto, name: str, value: str) -> None:
        entry = message(owner.nested_type, name, key=("string", False), value=(value, False))
        entry.options.map_entry = True

    message(file.message_type, "ModelParameter", string_value=("string", False))
    message(file.message_type, "Graph", level=("int32", False))
    accelerator = message(
        file.message_type, "Accelerator", name=("string", False),
        parameters=("Accelerator.ParametersEntry", True),
    )  # fmt: skip
    map_of(accelerator, "ParametersEntry", "string")
    message(file.message_type, "Accelerators", gpu_execution_accelerator=("Accelerator", True))
    message(
        file.message_type, "Optimization", graph=("Graph", False),
        execution_accelerators=("Accelerators", False),
    )  # fmt: skip
    config = message(
        file.message_type, "ModelConfig", backend=("string", False), optimization=("Optimization", False),
        parameters=("ModelConfig.ParametersEntry", True),
    )  # fmt: skip
    map_of(config, "ParametersEntry", "ModelParameter")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


def test_tritons_part_loads() -> None:
    kind = model_config()
    for settings in (ANCHORED, ON_CUDA, shipped(), shipped("cuda"), replace(ANCHORED, intra_op_threads=4)):
        found = text_format.Parse(triton_config(settings), kind())
        assert found.backend == "onnxruntime"
        assert found.optimization.graph.level == (2 if settings.optimization == "none" else 0)
        parameters = {key: value.string_value for key, value in found.parameters.items()}
        assert parameters["enable_mem_pattern"] == str(int(settings.mem_pattern))
        assert parameters["intra_op_thread_count"] == str(settings.intra_op_threads)
        accelerators = found.optimization.execution_accelerators.gpu_execution_accelerator
        assert len(accelerators) == (settings.provider == "cuda")
        for one in accelerators:
            wanted = settings.provider_options()
            wanted.pop("device_id")
            assert (one.name, dict(one.parameters)) == ("cuda", wanted)
        assert text_format.Parse(snippet("triton", settings, "m.onnx"), kind()) == found


def test_every_language_says_what_differs_from_the_defaults() -> None:
    for language, words in (("cpp", "DisableMemPattern()"), ("csharp", "EnableMemoryPattern = false")):
        assert words in snippet(language, ANCHORED, "m.onnx")
        assert "ORT_DISABLE_ALL" in snippet(language, ANCHORED, "m.onnx")
        assert "kSameAsRequested" in snippet(language, ON_CUDA, "m.onnx")
    assert "PRIORITY_BASED" in snippet("python", kept(), "m.onnx")
    assert set(LANGUAGES) == {"cpp", "csharp", "python", "triton"}
