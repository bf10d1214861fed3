"""What `doctor` found out -> figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnx_symmem.report.results import SCHEMA_VERSION
from onnx_symmem.run.doctor import Diagnosis, Finding

__all__ = ["DiagnosisFigures"]


@dataclass(frozen=True, slots=True)
class DiagnosisFigures:
    """Result of `doctor`."""

    found: Diagnosis

    @property
    def problem(self) -> str:
        """Why the plan is not kept, in one line; empty where it is."""
        d = self.found
        if d.keeps:
            return ""
        if not d.kept.keeps:
            why = d.kept.order or "its bytes are not as planned even in a session that should keep the plan"
            return f"{d.model}: {why}"
        names = ", ".join(f"{o.option} = {_shown(o.given)}" for o in d.breaking)
        which = f"broken by {names}" if names else "broken by several settings together"
        if d.given.keeps_first:
            which += "; the first run keeps it, later ones do not"
        return f"{d.model}: the plan is not kept at this shape: {which}"

    @property
    def not_predicted(self) -> str:
        """What of these runs no formula gives; empty where every run is predicted."""
        said = []
        if self.found.not_counted:
            reasons = "; ".join(self.found.not_counted)
            said.append(
                f"not all is counted ({reasons}): planned is what the first run took in a session that keeps "
                "the plan"
            )
        if any(o.option == "mem_pattern" and o.given for o in self.found.options):
            said.append(
                "with a memory pattern, a session's second and later runs at a shape hold one block for all "
                "tensors; its bytes are measured here, and no prediction covers them"
            )
        return "; ".join(said)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        d = self.found
        return {
            "schema": "onnx-symmem/doctor",
            "version": SCHEMA_VERSION,
            "model": d.model,
            "shape": dict(d.shape),
            "provider": d.provider,
            "planned_for": d.planned_for,
            "keeps": d.keeps,
            "problem": self.problem,
            "not_predicted": self.not_predicted,
            "kept": _finding_json(d.kept),
            "given": _finding_json(d.given),
            "options": [
                {
                    "option": o.option,
                    "wanted": _shown(o.wanted),
                    "given": _shown(o.given),
                    **_finding_json(o.finding),
                }
                for o in d.options
            ],
        }


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _finding_json(f: Finding) -> Mapping[str, Any]:
    return {
        "keeps_order": f.keeps_order,
        "keeps_peak": f.keeps_peak,
        "order": f.order,
        "nodes_equal": f.nodes_equal,
        "planned_peak": f.planned,
        "first_peak": f.first,
        "measured_peak": f.peak,
        "in_use_peak": f.in_use,
        "held": f.held,
    }
