"""What a file says of its versions: JSON in its metadata, for whoever reads the file later.

Peaks are texts of expressions in the dims of the inputs, with all that the guard counts. The version that
runs outside the domain is named, and so is the one of a file that has only that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from onnx_symmem.expr.domain import Domain
from onnx_symmem.rewrite.choice import FITS, LIMIT
from onnx_symmem.rewrite.reorder import EXECUTION_ORDER

__all__ = ["VersionRecord", "versions_of"]

_VERSIONS = "onnx_symmem.versions"


@dataclass(frozen=True)
class VersionRecord:
    """What is written of a file's versions.

    `branches` is how the names of the Ifs begin whose branches they are, `symbols` are those of the inputs,
    `limit` is the default under the policy `fits`, `rule` the traversal under which each version runs as
    planned, and `overhead` what was added to the peaks for deciding, in bytes. `entries` say what there is to
    know of each, `only` which one the file has, if it has no guard. `offloads`: only ONNX Runtime runs it.
    """

    branches: str
    policy: str
    domain: Domain
    symbols: Sequence[str]
    limit: int
    rule: str
    overhead: int
    entries: Sequence[Mapping[str, Any]]
    only: int | None
    offloads: bool

    def write(self, model: onnx.ModelProto) -> None:
        """Put the record into the metadata of a model, in place of what it says of versions and orders."""
        document: dict[str, Any] = {
            "format": 1,
            "branches": self.branches,
            "policy": self.policy,
            "outside": len(self.entries) - 1 if self.policy == FITS else 0,
            "domain": self._facts(),
            "largest_sum": 1 << 62,
            "overhead_bytes": self.overhead,
            "versions": list(self.entries),
        }
        if self.policy == FITS:
            document["limit"] = {"input": LIMIT, "default": self.limit}
        if self.offloads:
            document["needs"] = "onnxruntime"  # MemcpyToHost and MemcpyFromHost are no operators of ONNX
        if self.only is not None:
            document["only"] = self.only
        kept = [e for e in model.metadata_props if e.key not in (_VERSIONS, EXECUTION_ORDER)]
        del model.metadata_props[:]
        model.metadata_props.extend(kept)
        model.metadata_props.add(key=EXECUTION_ORDER, value=self.rule)
        model.metadata_props.add(key=_VERSIONS, value=json.dumps(document))

    def _facts(self) -> dict[str, Any]:
        ranges = {s: str(self.domain.range_of(s)) for s in self.symbols}
        equal = {name: str(expr) for name, expr in self.domain.equalities.items()}
        told = set(self.symbols)
        facts = [f"{fact} >= 0" for fact in self.domain.facts() if fact.symbols() <= told]
        return {"ranges": ranges, "equal": equal, "facts": facts}


def versions_of(model: onnx.ModelProto) -> dict[str, Any] | None:
    """What the metadata says of a model's versions; None where it has none."""
    for entry in model.metadata_props:
        if entry.key == _VERSIONS:
            found: dict[str, Any] = json.loads(entry.value)
            return found
    return None
