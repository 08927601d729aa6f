"""What a job has written into its run folder: taken as it is, or told to be of no use; nothing outside is read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.jobs.figures import REPORTED, Absent, Figure, Reported, Source, read_reported
from gangway.stacks.config.job_file import JobFile

COMMAND = JobFile.model_validate({"name": "mine", "command": ["true"], "max_hours": 1})
PRESET = JobFile.model_validate({"name": "mine", "preset": "dcgan-digits", "kimg": 1, "max_hours": 1})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


def read(folder: Path, content: str | bytes) -> Reported:
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "run" / "figures.json").write_bytes(data)
    return read_reported(COMMAND, folder)


def assert_all_absent(found: Reported, why: str) -> None:
    assert found.figures.keys() == REPORTED.keys()
    assert all(isinstance(each, Absent) and why in each.why for each in found.figures.values())
    assert found.metrics == {}


def test_known_names_have_units_and_others_are_the_jobs_own(folder: Path) -> None:
    found = read(folder, '{"images": 60000, "joules": 1.5, "val/accuracy": 0.97, "loss": -2}')
    images = found.figures["images"]
    assert isinstance(images, Figure)
    assert (images.value, images.unit, images.source) == (60_000, "images", Source.REPORTED)
    assert found.figures["tokens"] == Absent("figures.json has no tokens")
    assert {name: each.value for name, each in found.metrics.items()} == {"val/accuracy": 0.97, "loss": -2}
    assert found.problem == ""


def test_who_has_written_nothing_has_no_problem(folder: Path) -> None:
    found = read_reported(COMMAND, folder)
    assert_all_absent(found, "has not written figures.json")
    assert found.problem == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"images": NaN}', "NaN is not a JSON number"),
        ('{"images": 1e999}', "images is not finite"),
        ('{"images": -Infinity}', "-Infinity is not a JSON number"),
        (f'{{"images": {"9" * 400}}}', "images is not finite"),
        (f'{{"images": {"9" * 9000}}}', "run/figures.json: "),
        ('{"images": 1e41}', "above 1e+40"),
        ('{"images": true}', "images is not a number"),
        ('{"images": "7"}', "images is not a number"),
        ('{"images": null}', "images is not a number"),
        ('{"images": {"a": 1}}', "images is not a number"),
        ('{"images": -1}', "images is negative"),
        ('{"images": 1, "images": 2}', "duplicate"),
        ("[1, 2]", "not a JSON object"),
        ("7", "not a JSON object"),
        ("", "run/figures.json: "),
        ('{"images": 1', "run/figures.json: "),
        (b"\xff\xfe\xfa", "run/figures.json: "),
        ("[" * 20_000, "run/figures.json: "),
        ('{"\\u001b[31mred": 1}', "is not a valid name"),
        ('{"": 1}', "is not a valid name"),
        (json.dumps({"x" * 65: 1}), "is not a valid name"),
        (json.dumps({f"m{number}": 1 for number in range(257)}), "257 names"),
        ("{" + " " * 10_000_000 + "}", "larger than"),
    ],
)
def test_what_is_no_such_file_is_told(folder: Path, content: str | bytes, said: str) -> None:
    found = read(folder, content)
    assert said in found.problem
    assert_all_absent(found, found.problem)
    assert found.problem.isprintable()


def test_nothing_outside_is_read_and_nothing_is_waited_for(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "outside.json"
    own.write_text('{"images": 1}')
    place = folder / "run" / "figures.json"
    place.symlink_to(own)
    assert "it is a link" in read_reported(COMMAND, folder).problem
    place.unlink()
    os.mkfifo(place)
    assert "no regular file" in read_reported(COMMAND, folder).problem
    place.unlink()
    place.mkdir()
    assert read_reported(COMMAND, folder).problem
    place.rmdir()
    (folder / "run").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "figures.json").write_text('{"images": 1}')
    (folder / "run").symlink_to(tmp_path / "elsewhere")
    assert "it is a link" in read_reported(COMMAND, folder).problem
    assert "it is a link" in read_reported(PRESET, folder).problem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
NAMES = st.sampled_from([*REPORTED, "loss", "a b"]) | st.text(max_size=4)


@given(st.dictionaries(NAMES, JSON, max_size=4).map(json.dumps) | st.text(max_size=40))
def test_whatever_stands_there_it_is_read_or_told(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    (folder / "run").mkdir(parents=True, exist_ok=True)
    found = read(folder, content.encode("utf-8", "surrogatepass"))
    figures = [each for each in (*found.figures.values(), *found.metrics.values()) if isinstance(each, Figure)]
    assert not (figures and found.problem)
    if figures:
        numbers = json.loads(content)
        assert {each.value for each in figures} == {float(value) for value in numbers.values()}


@pytest.mark.slow
def test_of_a_preset_the_trainers_own_record_is_read(folder: Path) -> None:
    assert_all_absent(read_reported(PRESET, folder), "not written run.json yet")
    (folder / "run" / "run.json").write_text("{}")
    assert "run/run.json: " in read_reported(PRESET, folder).problem
    (folder / "run" / "run.json").unlink()
    words = ["--preset", "dcgan-digits", "--ngf", "4", "--ndf", "4", "--kimg", "0.128", "--metrics-samples", "64"]
    command = [sys.executable, "-m", "gangway.trainer", "train", *words, "--run-dir", str(folder / "run")]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = read_reported(PRESET, folder)
    assert found.problem == ""
    images, speed, tokens = (found.figures[name] for name in ("images", "images_per_sec", "tokens"))
    assert isinstance(images, Figure)
    assert images.value == 128
    assert isinstance(speed, Figure)
    assert speed.source is Source.REPORTED
    assert isinstance(tokens, Absent)
    assert not isinstance(found.figures["joules"], Figure) or found.figures["joules"].value > 0
