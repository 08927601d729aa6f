"""What `pulumi up` ends with, for every shipped stack."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from gangway.stacks.loading.loader import from_file
from gangway.stacks.outputs import HIDDEN, next_command, stack_exports

STACKS = sorted((Path(__file__).resolve().parents[2] / "stacks").glob("Pulumi.*.yaml"))


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem.removeprefix("Pulumi."))
def test_every_stack_names_a_command_of_ours(file: Path) -> None:
    config = from_file(file)
    words = next_command(config).split()
    assert words[:2] == ["gangway", "job"]
    if config.job is None:
        assert "submit" in words
    else:
        assert words[2:] == [config.stack_name]


def test_a_slurm_head_is_named_as_it_is_submitted_to() -> None:
    config = from_file(next(file for file in STACKS if "aws-p5-slurm" in file.name))
    assert next_command(config, "slurm:/fsx/jobs@spot").endswith(" --on slurm:/fsx/jobs@spot")


def test_outputs_that_a_stack_does_not_have_are_left_out_and_long_ones_are_hidden() -> None:
    exports: dict[str, Any] = {"job": {"name": "dev"}, "kubeconfig": "{}", "zone": None, "run_bucket": "runs"}
    shown = stack_exports(from_file(STACKS[0]), exports)
    assert set(shown) == {"job", "kubeconfig", "run_bucket", "next_command"}
    assert {name for name, value in shown.items() if isinstance(value, pulumi.Output)} == HIDDEN
