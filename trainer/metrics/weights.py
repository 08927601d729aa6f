"""Finds, verifies and loads weights that cannot ship with the trainer. Downloads nothing, unpickles only tensors."""

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import sha256_of
from gangway.trainer.core.regular_files import check_file


@dataclass(frozen=True)
class WeightsFile:
    """A published file of weights."""

    file: str  # its published name
    flag: str  # of `python -m gangway.trainer evaluate` that names it; `train` has none
    variable: str  # of the environment that names it for both
    published: str  # where it can be had, in words
    sha256_prefix: str  # first digits of its hash; empty where none is published
    what_for: str
    instead: str  # a metric that does without

    def find(self, given: Path | None) -> Path:
        """Returns the file of the flag or variable (TrainerError without one, with where to get it)."""
        named = given or (Path(os.environ[self.variable]) if os.environ.get(self.variable) else None)
        if named is not None and named.is_file():
            return named
        place = (
            self.flag if given else f"${self.variable}" if named else f"${self.variable} (or evaluate's {self.flag})"
        )
        raise TrainerError(
            place=place,
            problem=f"{self.what_for} need the weights {self.file}, and "
            + ("there is no such file" if named else "no path to them was given"),
            value=None if named is None else str(named),
            allowed=f"a path to {self.file}",
            fix=f"download it once ({self.published}) and set {self.variable} to its path; in the image: COPY "
            f"{self.file} /opt/weights/ and ENV {self.variable}=/opt/weights/{self.file}; without it: --metrics "
            f"{self.instead}",
        )

    def verify(self, path: Path) -> str:
        """Returns the SHA-256 of a file that `find` returned (TrainerError: not the published one's)."""
        found = sha256_of(path)
        if not found.startswith(self.sha256_prefix):
            raise TrainerError(
                place=str(path),
                problem=f"is not the published {self.file}: its hash is another",
                value=f"sha256 {found}",
                allowed=f"sha256 {self.sha256_prefix}...",
                fix=f"download it anew ({self.published}); scores with other weights compare with nothing",
            )
        return found


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Loads a state_dict of tensors on the CPU (TrainerError: no such file)."""
    try:
        check_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        raise bad_weights(path, f"cannot be read as weights: {str(error).splitlines()[0]}") from None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise bad_weights(path, "holds something else than named tensors")
    return dict(state)


def check_shapes(path: Path, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raises TrainerError for the first tensor that is missing, unknown or of another shape."""
    for name in [*expected, *found]:
        shapes = [tuple(state[name].shape) if name in state else None for state in (found, expected)]
        if shapes[0] != shapes[1]:
            there, wanted = (f"shape {shape}" if shape is not None else "no such tensor" for shape in shapes)
            raise TrainerError(
                place=f"{path}: {name}",
                problem="the weights do not fit the network",
                value=there,
                allowed=wanted,
                fix="name the file of the right network",
            )


def bad_weights(path: Path, problem: str, allowed: str = "a state_dict of tensors") -> TrainerError:
    """Returns the error of a file that holds something else."""
    return TrainerError(place=str(path), problem=problem, allowed=allowed, fix="download it anew")
