"""A run's folder is its sender's: what stands under a run's names and is no plain file is refused by every command."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.bench.reproduce import check_comparable
from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.keys import new_signing_key
from gangway.runs.run_folders import find_runs

pytestmark = pytest.mark.attack("a run's folder", "links, FIFOs and files without an end under a run's names")
WHY = re.compile("no regular file|is a link")
RECORDED = Path(__file__).parent / "comparison" / "recorded"
ODD: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a link to a device without an end": lambda path: path.symlink_to("/dev/zero"),
    "a link to another's file": lambda path: path.symlink_to("/etc/passwd"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(RECORDED, tmp_path / "run")
    return tmp_path / "run"


def refusal(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("name", ["run.json", "run.json.sig", "stats.jsonl"])
def test_report_refuses_what_is_no_file(what: str, name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    ODD[what](folder / name)
    assert WHY.search(refusal("report", folder))


@pytest.mark.parametrize("what", ODD)
def test_sign_and_job_refuse_it_too(what: str, folder: Path, tmp_path: Path) -> None:
    (folder / "run.json").unlink()
    ODD[what](folder / "run.json")
    (tmp_path / "key.pem").write_text(new_signing_key())
    for words in (("sign", folder, "--key", tmp_path / "key.pem"), ("job", folder)):
        assert WHY.search(refusal(*words))


@pytest.mark.parametrize("what", ODD)
def test_reproduce_refuses_a_manifest_that_is_none(what: str, folder: Path) -> None:
    (folder / "checkpoints").mkdir()
    ODD[what](folder / "checkpoints" / "000016.json")
    (run,) = find_runs([folder])
    with pytest.raises(ValueError, match="manifest"):
        check_comparable(run)


def test_a_folder_that_a_person_names_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "newest").symlink_to("run")
    (run,) = find_runs([tmp_path / "newest"])
    assert run.path == folder
