"""Session settings -> the lines of code that set them, per language.

Only calls that the documented API of ONNX Runtime has: C++ from onnxruntime_cxx_api.h, C# from
Microsoft.ML.OnnxRuntime, Python from onnxruntime. For Triton it is the part of config.pbtxt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from onnx_symmem.run.deployment import triton_config
from onnx_symmem.run.session import LEVELS, ORDERS, PROVIDERS, SessionSettings

__all__ = ["LANGUAGES", "snippet"]


def snippet(language: str, settings: SessionSettings, model: str) -> str:
    """Code that makes a session on the file `model` under `settings`."""
    return LANGUAGES[language](settings, model)


def _text(value: str) -> str:
    """A string literal; all the languages take that of JSON for what stands here."""
    return json.dumps(value)


def _cpp(settings: SessionSettings, model: str) -> str:
    lines = [
        f"// A session that keeps the plan of {model}.",
        "#include <onnxruntime_cxx_api.h>",
        "",
    ]
    if settings.owns_cpu_arena:
        lines += [
            "// An arena that grows by what is asked for. Call it once, before the first session is made.",
            "inline void use_exact_arena(Ort::Env& env) {",
            "  Ort::MemoryInfo cpu = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);",
            "  Ort::ArenaCfg exact(0, 1, -1, -1);  // no limit, kSameAsRequested, and defaults",
            "  env.CreateAndRegisterAllocator(cpu, exact);",
            "}",
            "",
        ]
    lines += [
        "inline Ort::Session planned_session(Ort::Env& env, const ORTCHAR_T* path) {",
        "  Ort::SessionOptions options;",
        f"  options.SetGraphOptimizationLevel({LEVELS[settings.optimization]});",
        "  options.SetExecutionMode(ORT_SEQUENTIAL);",
        f"  options.{'EnableMemPattern' if settings.mem_pattern else 'DisableMemPattern'}();",
        f"  options.SetIntraOpNumThreads({settings.intra_op_threads});",
    ]
    lines += [
        f"  options.AddConfigEntry({_text(key)}, {_text(value)});"
        for key, value in settings.config_entries().items()
    ]
    given = settings.provider_options()
    if given:
        lines += [
            f"  const char* keys[] = {{{', '.join(map(_text, given))}}};",
            f"  const char* values[] = {{{', '.join(map(_text, given.values()))}}};",
            "  OrtCUDAProviderOptionsV2* cuda = nullptr;",
            "  Ort::ThrowOnError(Ort::GetApi().CreateCUDAProviderOptions(&cuda));",
            "  Ort::ThrowOnError(",
            f"      Ort::GetApi().UpdateCUDAProviderOptions(cuda, keys, values, {len(given)}));",
            "  options.AppendExecutionProvider_CUDA_V2(*cuda);",
            "  Ort::GetApi().ReleaseCUDAProviderOptions(cuda);",
        ]
    lines += ["  return Ort::Session(env, path, options);", "}"]
    return "\n".join(lines) + "\n"


def _csharp(settings: SessionSettings, model: str) -> str:
    lines = [
        f"// A session that keeps the plan of {model}.",
        "using System.Collections.Generic;",
        "using Microsoft.ML.OnnxRuntime;",
        "",
        "static class Planned",
        "{",
    ]
    if settings.owns_cpu_arena:
        lines += [
            "    // An arena that grows by what is asked for. Call it once, before the first session.",
            "    public static void UseExactArena()",
            "    {",
            "        var cpu = new OrtMemoryInfo(",
            '            "Cpu", OrtAllocatorType.ArenaAllocator, 0, OrtMemType.Default);',
            "        var exact = new OrtArenaCfg(0, 1, -1, -1); // no limit, kSameAsRequested, and defaults",
            "        OrtEnv.Instance().CreateAndRegisterAllocator(cpu, exact);",
            "    }",
            "",
        ]
    lines += [
        "    public static InferenceSession Session(string path)",
        "    {",
        "        using var options = new SessionOptions",
        "        {",
        f"            GraphOptimizationLevel = GraphOptimizationLevel.{LEVELS[settings.optimization]},",
        "            ExecutionMode = ExecutionMode.ORT_SEQUENTIAL,",
        f"            EnableMemoryPattern = {str(settings.mem_pattern).lower()},",
        f"            IntraOpNumThreads = {settings.intra_op_threads},",
        "        };",
    ]
    lines += [
        f"        options.AddSessionConfigEntry({_text(key)}, {_text(value)});"
        for key, value in settings.config_entries().items()
    ]
    given = settings.provider_options()
    if given:
        lines += [
            "        using var cuda = new OrtCUDAProviderOptions();",
            "        cuda.UpdateOptions(new Dictionary<string, string>",
            "        {",
            *(f"            [{_text(key)}] = {_text(value)}," for key, value in given.items()),
            "        });",
            "        options.AppendExecutionProvider_CUDA(cuda);",
        ]
    lines += ["        return new InferenceSession(path, options);", "    }", "}"]
    return "\n".join(lines) + "\n"


def _python(settings: SessionSettings, model: str) -> str:
    lines = [f"# A session that keeps the plan of {model}.", "import onnxruntime as ort", ""]
    if settings.owns_cpu_arena:
        lines += [
            "# An arena that grows by what is asked for; once, before the first session is made.",
            "arena = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR",
            'cpu = ort.OrtMemoryInfo("Cpu", arena, 0, ort.OrtMemType.DEFAULT)',
            'ort.create_and_register_allocator(cpu, ort.OrtArenaCfg({"arena_extend_strategy": 1}))',
            "",
        ]
    lines += [
        "options = ort.SessionOptions()",
        f"options.graph_optimization_level = ort.GraphOptimizationLevel.{LEVELS[settings.optimization]}",
        "options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL",
        f"options.execution_order = ort.ExecutionOrder.{ORDERS[settings.execution_order]}",
        f"options.enable_mem_pattern = {settings.mem_pattern}",
        f"options.enable_mem_reuse = {settings.mem_reuse}",
        f"options.intra_op_num_threads = {settings.intra_op_threads}",
    ]
    lines += [
        f"options.add_session_config_entry({_text(key)}, {_text(value)})"
        for key, value in settings.config_entries().items()
    ]
    providers = [f"({_text(PROVIDERS[settings.provider])}, {json.dumps(settings.provider_options())})"]
    if settings.provider != "cpu":
        providers.append(_text(PROVIDERS["cpu"]))
    lines.append(
        f"session = ort.InferenceSession({_text(model)}, options, providers=[{', '.join(providers)}])"
    )
    return "\n".join(lines) + "\n"


def _triton(settings: SessionSettings, model: str) -> str:
    return f"# The part of config.pbtxt that keeps the plan of {model}.\n{triton_config(settings)}"


LANGUAGES: Mapping[str, Callable[[SessionSettings, str], str]] = {
    "cpp": _cpp,
    "csharp": _csharp,
    "python": _python,
    "triton": _triton,
}
"""The code for a session, by language."""
