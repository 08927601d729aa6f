"""The section `regions` as people write it, in stack files and in job files, and as options of a command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import RegionLimits
from gangway.stacks.config.job_file import read_job_file
from gangway.stacks.config.sections import parse_limits
from gangway.stacks.loading.loader import from_file

JOB = "name: mine\ncommand: [python, train.py]\nmax_hours: 1\nregions: "
WRITTEN = "{allow: ['aws:eu-'], deny: ['aws:eu-west-2'], residency: [EU, 'NO']}"
LIMITS = RegionLimits(("aws:eu-",), ("aws:eu-west-2",), ("EU", "NO"))
MISTAKES = [
    ("{allow: ['aws:eu-', 'aws:eu-wset-1']}", "regions.allow[1]"),
    ("{deny: [gcp]}", "regions.deny[0]"),
    ("{residency: [Europe]}", "regions.residency[0]"),
    ("{residency: EU}", "regions.residency"),
    ("{residency: [NO]}", "regions.residency[0]"),
    ("{forbid: [EU]}", "regions.forbid"),
    ("EU", "regions"),
]


def test_a_job_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB + WRITTEN)
    job = read_job_file(path)
    assert job.regions.limits == LIMITS
    assert type(job).model_validate_json(job.model_dump_json(exclude_unset=True)) == job, "as an engine keeps it"


def test_a_stack_file_has_it(stack_file: Callable[[Callable[[dict[str, Any]], object]], Path]) -> None:
    path = stack_file(lambda values: None)
    assert not from_file(path).regions.limits.asked
    path.write_text(f"{path.read_text()}  gangway:regions: {WRITTEN}\n")
    assert from_file(path).regions.limits == LIMITS


@pytest.mark.parametrize(("written", "place"), MISTAKES)
def test_mistakes_of_a_job_file(tmp_path: Path, written: str, place: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB + written)
    with pytest.raises(ExceptionGroup) as refused:
        read_job_file(path)
    (mistake,) = refused.value.exceptions
    assert isinstance(mistake, InputError)
    assert mistake.place.endswith(f": {place}")
    assert mistake.allowed
    assert mistake.fix


@pytest.mark.parametrize(("written", "place"), MISTAKES)
def test_mistakes_of_a_stack_file(
    stack_file: Callable[[Callable[[dict[str, Any]], object]], Path], written: str, place: str
) -> None:
    path = stack_file(lambda values: None)
    path.write_text(f"{path.read_text()}  gangway:regions: {written}\n")
    with pytest.raises(ExceptionGroup) as refused:
        from_file(path)
    (mistake,) = refused.value.exceptions
    assert isinstance(mistake, InputError)
    assert mistake.place.endswith(f"gangway:{place}")
    assert mistake.fix


def test_options() -> None:
    assert parse_limits("aws:eu-", "aws:eu-west-2", "EU, NO") == LIMITS
    assert parse_limits(None, None, None) == RegionLimits()
    for given, option in (("aws:eu-,", "--allow"), ("", "--allow"), ("awss:eu-", "--allow")):
        with pytest.raises(InputError) as refused:
            parse_limits(given, None, None)
        assert refused.value.place == option
    with pytest.raises(InputError) as refused:
        parse_limits(None, None, "UK")
    assert (refused.value.place, refused.value.fix) == ("--residency", "write GB")
