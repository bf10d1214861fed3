"""Every exception of the package, each with the exit code its CLI process ends with.

    SymmemError
    ├── CheckFailed (1)              nothing was written
    │   ├── LimitNotMet              a memory limit is below what the model needs
    │   └── VerificationFailed       original and result do not agree
    ├── InputError (2)
    │   ├── ModelFileError           the file is missing, empty, not ONNX, or truncated
    │   ├── DomainError              a dim name is unknown, a range is upside down
    │   ├── UsageError               an option or an argument does not fit
    │   └── ExpressionError          a text is not a size expression
    ├── UnsupportedModel (3)         a legal model that this tool cannot treat
    └── RunFailed (4)                ONNX Runtime refused or broke off

A message is one line: what was met (file, node, op), what was expected, what to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = [
    "CheckFailed",
    "DomainError",
    "ExpressionError",
    "InputError",
    "LimitNotMet",
    "ModelFileError",
    "RunFailed",
    "SymmemError",
    "UnsupportedModel",
    "UsageError",
    "VerificationFailed",
    "naming",
]


class SymmemError(Exception):
    """Base of all errors that are answers to the user rather than defects of the tool."""

    exit_code = 4


class CheckFailed(SymmemError):
    """A check the user asked for did not hold; nothing was written."""

    exit_code = 1


class LimitNotMet(CheckFailed):
    """A memory limit, in bytes, is below what the model needs at the asked shapes."""


class VerificationFailed(CheckFailed):
    """Outputs of the original and of the rewritten model differ.

    `absolute` and `relative` (to the largest number of its output) are the largest differences of all outputs
    that were compared, None where these are not numbers of equal shapes.
    """

    def __init__(self, message: str, absolute: float | None = None, relative: float | None = None) -> None:
        super().__init__(message)
        self.absolute, self.relative = absolute, relative


class InputError(SymmemError):
    """What the user gave cannot be used."""

    exit_code = 2


class ModelFileError(InputError):
    """The model file is missing, empty, not ONNX, truncated, or refers outside its folder."""


class DomainError(InputError):
    """A dim name, range, or shape does not fit the model."""


class UsageError(InputError):
    """An option or argument does not fit the model or the machine."""


class ExpressionError(InputError):
    """A text could not be read as an integer expression over symbols."""


class UnsupportedModel(SymmemError):
    """The model is legal ONNX but outside what this tool can treat."""

    exit_code = 3


class RunFailed(SymmemError):
    """ONNX Runtime refused the model or broke off while running it."""

    exit_code = 4


@contextlib.contextmanager
def naming(label: str) -> Iterator[None]:
    """Let errors about a model begin with its name, where those who raised them did not know it."""
    try:
        yield
    except (CheckFailed, UnsupportedModel, RunFailed) as error:
        text = str(error)
        if not text.startswith(f"{label}:"):
            error.args = (f"{label}: {text}",)
        raise
