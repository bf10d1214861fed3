"""Results -> Markdown: docs/RESULTS.md, and the short table of the README between its markers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.planning import STAGES
from benchmarks.results import ModelResult, Report, ShapeResult, geometric_mean

__all__ = ["END", "START", "mean_text", "readme_section", "results_page", "write_documents"]

START, END = "<!-- results -->", "<!-- /results -->"

_MIB = 1 << 20
_SIZES = 4
_README = (
    "MiB at the largest of {shapes} shapes per model, second run of the same shape; `in use` is the most "
    "that was taken from the arena, `held` what it has of the system, `peak` the most that activations and "
    "outputs of the planned file take."
)
_SOURCE = (
    "Made by `{command}` on {hardware}; [docs/RESULTS.md](docs/RESULTS.md) has every number, "
    "[docs/results](docs/results/README.md) all other tables."
)


def write_documents(report: Report, page: Path, readme: Path) -> None:
    """Write the page, and the part of the README between its markers."""
    text = readme.read_text()
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(
            f"{readme}: the markers {START} and {END} are missing; put them where the table goes"
        )
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(results_page(report))
    readme.write_text(f"{before}{START}\n\n{readme_section(report)}\n{END}{after}")


def readme_section(report: Report) -> str:
    """The short table: per model the largest shape, as shipped and planned."""
    lines = [
        _README.format(shapes=_shapes_per_model(report)),
        "",
        *_table(
            ("model", "shape", "shipped in use", "shipped held", "planned in use", "planned held",
             "peak predicted", "peak measured", "nodes as predicted", "never worse"),
            [
                (m.name, _shape(r.shape), _mib(r.shipped_in_use), _mib(r.shipped_held), _mib(r.in_use),
                 _mib(r.held), _mib(r.predicted), _mib(r.measured), _equal(r), m.never_worse)
                for m, r in _largest(report)
            ],
            "llrrrrrrll",
        ),
        "",
        _paragraph(report),
        "",
        _SOURCE.format(**report.made),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _paragraph(report: Report) -> str:
    rows, largest = report.rows, report.largest
    equal = sum(r.equal for r in rows)
    return (
        f"Geometric means, planned over shipped: in use **{mean_text(r.in_use_ratio for r in largest)}**, "
        f"held **{mean_text(r.held_ratio for r in largest)}** at these shapes "
        f"({mean_text(r.in_use_ratio for r in rows)} and {mean_text(r.held_ratio for r in rows)} over all "
        f"{len(rows)}); with weights used as they are in the file (`--no-prepacking`) "
        f"{mean_text(r.unpacked_ratios[0] for r in largest)} and "
        f"{mean_text(r.unpacked_ratios[1] for r in largest)} "
        f"({mean_text(r.unpacked_ratios[0] for r in rows)} and "
        f"{mean_text(r.unpacked_ratios[1] for r in rows)}). "
        f"Prediction and measurement agree after every node, to the byte, at {equal} of {len(rows)} shapes."
    )


def results_page(report: Report) -> str:
    """The whole page."""
    made = report.made
    parts = [
        ["# Results", "", "This page is written by a command; every number on it comes from one run of it."],
        [
            f"- **command**: `{made['command']}`",
            f"- **date**: {made['date']}; it took {made['took']}",
            f"- **hardware**: {made['hardware']}",
            f"- **versions**: {made['versions']}",
        ],
        _summary(report),
        _prediction(report),
        _shipped(report),
        _plans(report),
        _bounds(report),
        _planning(report),
        _notes(report),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


# ------------------------------------------------------------------------------------------------ parts


def _summary(report: Report) -> list[str]:
    rows, largest = report.rows, report.largest
    planned = [m for m in report.models if m.never_worse]
    nodes = sum(r.nodes for r in rows)
    equal = sum(round((r.nodes_equal or 0.0) * r.nodes) for r in rows)
    verified = sum(bool(m.verified) for m in planned)
    fates = Counter(m.never_worse.partition(",")[0] for m in planned)
    in_short = (
        f"- Planned: {len(planned)} of {len(report.models)} models; outputs bit-equal in all "
        f"{verified} that were run. Never worse: {fates['proved']} proved, {fates['dispatched']} "
        f"decided by the shape, {fates['kept']} kept the order that would have run. Proved optimal: "
        f"{sum(m.optimal for m in planned)}.\n"
        f"- Predicted peak = measured peak at {sum(r.predicted == r.measured for r in rows)} of {len(rows)} "
        f"shapes; predicted = measured bytes after {equal:,} of {nodes:,} nodes.\n"
        f"- Where neither side has weights laid out anew, outputs are bit-equal in "
        f"{sum(m.unpacked_equal is True for m in planned)} of "
        f"{sum(m.unpacked_equal is not None for m in planned)} models."
    )
    lines = ["## In short", "", in_short, "", "Geometric means of ratios within this run:", ""]
    lines += _table(
        ("planned / ONNX Runtime as shipped, second run", f"all {len(rows)} shapes",
         f"largest of each of {len(largest)} models", "target"),
        [
            ("arena in use", *(mean_text(r.in_use_ratio for r in some) for some in (rows, largest)), "0.50"),
            ("arena in use that no order goes below",
             *(mean_text(r.least_ratio or r.in_use_ratio for r in some) for some in (rows, largest)), ""),
            ("arena held", *(mean_text(r.held_ratio for r in some) for some in (rows, largest)), "0.40"),
            ("arena in use, weights as they are in the file (`--no-prepacking`)",
             *(mean_text(r.unpacked_ratios[0] for r in some) for some in (rows, largest)), "0.50"),
            ("arena held, weights as they are in the file",
             *(mean_text(r.unpacked_ratios[1] for r in some) for some in (rows, largest)), "0.40"),
            ("activations and outputs, over ONNX Runtime's order under the same memory settings",
             *(mean_text(r.tensor_ratio for r in some) for some in (rows, largest)), ""),
        ],
        "lrrr",
    )  # fmt: skip
    text = """What no order goes below: the certified bound of the graph at the shape and the weights that
    ONNX Runtime lays out anew, over what it uses as shipped. Where that is above the target, only using
    weights as they are in the file or running nodes again reaches it: [levels](results/levels.md)."""
    lines += ["", _prose(text)]
    return lines


def _rows(report: Report) -> Iterator[tuple[str, ShapeResult]]:
    """All rows, the model's name on the first of each."""
    for model in report.models:
        for number, row in enumerate(model.shapes):
            yield "" if number else model.name, row


def _prediction(report: Report) -> list[str]:
    rows = [
        (name, _shape(r.shape), _mib(r.predicted), _mib(r.measured), _equal(r), _mib(r.before_predicted),
         _mib(r.before_measured), _ratio(r.measured, r.before_measured))
        for name, r in _rows(report)
    ]  # fmt: skip
    titles = (
        "model", "shape", "predicted", "measured", "nodes equal", "ORT predicted", "ORT measured",
        "planned / ORT",
    )  # fmt: skip
    text = """MiB that activations and outputs take at most. `predicted` and `measured`: the planned file;
    `nodes equal`: nodes after which the predicted bytes are the measured ones. `ORT`: ONNX Runtime's graph
    and order under the same memory settings, predicted by the formula of `optimize`."""
    return ["## Predicted and measured peak", "", _prose(text), "", *_table(titles, rows, "llrrlrrr")]


def _shipped(report: Report) -> list[str]:
    rows = [
        (name, _shape(r.shape), _mib(r.shipped_in_use), _mib(r.in_use), f"{r.in_use_ratio:.2f}",
         _ratio2(r.least_ratio), _ratio2(r.unpacked_ratios[0]), _mib(r.shipped_held), _mib(r.held),
         f"{r.held_ratio:.2f}", _ratio2(r.unpacked_ratios[1]), _mib(r.static),
         _mib(r.scratch))
        for name, r in _rows(report)
    ]  # fmt: skip
    titles = (
        "model", "shape", "in use, shipped", "planned", "ratio", "no order below", "not packed",
        "held, shipped", "planned", "ratio", "not packed", "static", "scratch",
    )  # fmt: skip
    text = """MiB of the arena in the second run of the same shape: the most `in use` since the session was
    made, and what it has `held` of the system at the end. `shipped`: the model with ONNX Runtime's defaults.
    Both count weights laid out anew for the kernels (`static`) and kernels' own buffers and chunk slack
    (`scratch`), here those of the planned file. `no order below`: the bound and `static`, over shipped. `not
    packed`: weights used as they are in the file, which takes no `static` and more time."""
    return ["## Beside ONNX Runtime as shipped", "", _prose(text), "", *_table(titles, rows, "llrrrrrrrrrrr")]


def _plans(report: Report) -> list[str]:
    rows = [
        (
            m.name, f"{m.nodes:,}", m.level, f"{m.total_seconds:.1f}", m.never_worse,
            "yes" if m.optimal else "not proved", m.order or "-", f"{m.moved:,}",
            f"{m.in_place[0]} → {m.in_place[1]}", "; ".join(map(_shape, m.verified)) or "-",
        )
        for m in report.models
        if m.never_worse
    ]  # fmt: skip
    titles = (
        "model", "nodes", "level", "seconds", "never worse", "optimal", "order", "moved", "in place",
        "bit-equal at",
    )  # fmt: skip
    text = """`nodes` after ONNX Runtime's optimisations at `level`; `seconds` of `optimize`, all stages;
    `in place`: tensors written over an input, before and after; outputs are `bit-equal at` these shapes."""
    return ["## Plans", "", _prose(text), "", *_table(titles, rows, "lrlrlllrrl")]


def _bounds(report: Report) -> list[str]:
    bounded = [
        (m, [(p[0], p[1], p[2], p[3]) for p in m.peaks if p[1] is not None and p[2] is not None and p[3]])
        for m in report.models
    ]
    worst = [(m, max(peaks, key=lambda p: p[2] / p[3])) for m, peaks in bounded if peaks]
    rows = [
        (
            m.name,
            _shape(shape),
            _mib(before),
            _mib(after),
            _ratio(after, before),
            _mib(least),
            _ratio(after, least),
        )
        for m, (shape, before, after, least) in worst
    ]
    titles = ("model", "shape", "before", "after", "ratio", "no order below", "after / bound")
    text = """MiB, from formulas alone: the peak before and after, and a certified bound that no order of the
    same graph can go below, at that of the shapes spread over the domain (1 and up per dim, 512 standing for
    no limit) where the plan is farthest from the bound."""
    ratios = [after / least for _, (_, _, after, least) in worst]
    said = (
        f"Geometric mean {mean_text(ratios)}, worst {max(ratios, default=0.0):.2f} (targets: 1.02 and 1.15)."
    )
    table = _table(titles, rows, "llrrrrr")
    return ["## Distance from the least possible", "", _prose(text), said, "", *table]


def _planning(report: Report) -> list[str]:
    if not report.planning:
        return []
    rows = [
        (f"{nodes:,}", *(f"{seconds.get(s, 0.0):.2f}" for s in STAGES), f"{_thinking(seconds):.2f}")
        for nodes, seconds in report.planning
    ]
    text = """Seconds for decoders of many narrow layers at level none (targets: 2 s for 1,000 nodes, 10 s for
    10,000, 60 s for 100,000)."""
    table = _table(("nodes", *STAGES, "together"), rows, "r" * (len(STAGES) + 2))
    return ["## Planning time", "", _prose(text), "", *table]


def _thinking(seconds: Mapping[str, float]) -> float:
    return sum(seconds.get(stage, 0.0) for stage in STAGES)


def _notes(report: Report) -> list[str]:
    lines = [line for model in report.models for line in _notes_of(model)]
    return ["## Notes", "", *(lines or ["Nothing differs from what was predicted."])]


def _notes_of(model: ModelResult) -> list[str]:
    lines = [f"- **{model.name}**: {model.failed}"] if model.failed else []
    lines += [f"- **{model.name}**: {note}" for note in model.notes]
    for r in model.shapes:
        where = f"- **{model.name}** at {_shape(r.shape)}: "
        if r.why_not:
            lines.append(f"{where}nothing is predicted: {r.why_not}")
        elif not r.equal:
            ops = ", ".join(f"{d.op} ({d.nodes} nodes, up to {d.largest:+,} bytes)" for d in r.differences)
            lines.append(f"{where}{_equal(r)} nodes equal; differences arise at {ops or 'the peak formula'}")
        if r.before_predicted not in (None, r.before_measured):
            lines.append(
                f"{where}ONNX Runtime's own order was predicted to take {r.before_predicted:,} bytes and "
                f"took {r.before_measured:,}"
            )
        if r.measured > r.before_measured:
            lines.append(
                f"{where}the planned file takes {r.measured - r.before_measured:,} bytes more than ONNX "
                f"Runtime's own order ({r.measured:,})"
            )
        lines += [f"{where}not counted: {reason}" for reason in r.reasons]
    taken = sorted({name for r in model.shapes for name in r.taken})
    if taken:
        lines.append(
            f"- **{model.name}**: {len(taken)} sizes depend on data ({', '.join(taken[:4])}"
            f"{', ...' if len(taken) > 4 else ''}); predictions take them from the run"
        )
    return lines


# ------------------------------------------------------------------------------------------------ pieces


def mean_text(ratios: Iterable[float]) -> str:
    """A geometric mean in two digits, a dash without numbers."""
    mean = geometric_mean(ratios)
    return "-" if mean is None else f"{mean:.2f}"


def _prose(text: str) -> str:
    """A text of several lines as one."""
    return " ".join(text.split())


def _largest(report: Report) -> list[tuple[ModelResult, ShapeResult]]:
    rows = iter(report.largest)
    return [(m, next(rows)) for m in report.models if m.shapes]


def _shapes_per_model(report: Report) -> str:
    counts = sorted({len(m.shapes) for m in report.models if m.shapes})
    return " to ".join(dict.fromkeys(map(str, (counts[:1] + counts[-1:])))) or "0"


def _mib(number: int | None) -> str:
    if number is None:
        return "-"
    mib = number / _MIB
    return f"{mib:,.2f}" if mib < 100 else f"{mib:,.1f}"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def _ratio2(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _shape(shape: Mapping[str, int]) -> str:
    """A shape, cut where sizes that depend on data make it long."""
    sizes = [f"{name}={size}" for name, size in shape.items()]
    return ", ".join(sizes if len(sizes) <= _SIZES else [*sizes[:_SIZES], "..."])


def _equal(row: ShapeResult) -> str:
    if row.nodes_equal is None:
        return "not predicted"
    same = round(row.nodes_equal * row.nodes)
    return f"{same:,} of {row.nodes:,}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], alignment: str) -> list[str]:
    rules = ["---:" if kind == "r" else "---" for kind in alignment]
    return [_line(titles), _line(rules), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
