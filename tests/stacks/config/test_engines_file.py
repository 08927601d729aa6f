"""The file that gives engines names: what it may say, and what is wrong with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.stacks.config.engines_file import VARIABLE, named_engines

Write = Callable[[Any], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """The file that the variable names."""

    def write(engines: Any) -> Path:
        path = tmp_path / "engines.yaml"
        path.write_text(yaml.safe_dump({"engines": engines}), "utf-8")
        monkeypatch.setenv(VARIABLE, str(path))
        return path

    return write


def mistakes() -> list[InputError]:
    try:
        named_engines()
    except ExceptionGroup as group:
        return [one for one in group.exceptions if isinstance(one, InputError)]
    return []


def test_engines_have_names(write: Write) -> None:
    write({
        "private": {"engine": "slurm:/jobs@gpu", "region": "hosts:lab/DE", "usd_per_node_hour": 11.5},
        "cloud": {
            "engine": "kubernetes:prod@a/gpu", "region": "aws:us-east-1", "machine_type": "p5.48xlarge",
            "capacity": "spot",
        },
    })  # fmt: skip
    found = named_engines()
    assert set(found) == {"private", "cloud"}
    assert (found["private"].usd_per_node_hour, found["cloud"].capacity) == (11.5, "spot")


def test_without_a_file_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert named_engines() == {}


def test_a_file_that_is_named_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match=VARIABLE):
        named_engines()


@pytest.mark.parametrize(
    ("engine", "place", "said"),
    [
        ({"engine": "pbs:/jobs"}, "a.engine", "write slurm:/shared/jobs"),
        ({"engine": "local:/jobs#aws:us-east-1"}, "a.engine", "write region: aws:eu-central-1"),
        ({"engine": "local:/a,local:/b"}, "a.engine", "write region"),
        ({"engine": "local", "region": "aws:nowhere-1"}, "a.region", "choose one of the allowed values"),
        ({"engine": "local", "machine_type": "p5.48xlarge"}, "a", "add region: aws:us-east-1"),
        (
            {"engine": "local", "region": "hosts:lab/DE", "machine_type": "p5.48xlarge"},
            "a",
            "or write usd_per_node_hour",
        ),
        ({"engine": "local", "usd_per_node_hour": 1, "capacity": "spot"}, "a", "leave it out"),
        ({"engine": "local", "usd_per_node_hour": -1}, "a.usd_per_node_hour", ""),
        ({"engin": "local"}, "a.engin", "did you mean 'engine'?"),
    ],
)
def test_a_mistake_is_told_with_its_place(write: Write, engine: dict[str, Any], place: str, said: str) -> None:
    write({"a": engine})
    found = [one for one in mistakes() if one.place.endswith(f"engines.{place}")]
    assert found, mistakes()
    assert any(said in one.fix for one in found), [one.fix for one in found]


@pytest.mark.parametrize("name", ["slurm", "A", "1a", "with_line"])
def test_a_name_is_none_of_the_kinds(write: Write, name: str) -> None:
    write({name: {"engine": "local"}})
    (found,) = mistakes()
    assert f"rename '{name}'" in found.fix
