"""`gangway sign`, and what `report` and `reproduce` say of signed runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.keys import new_signing_key, public_half
from gangway.runs.signatures import read_public_key
from gangway.trainer.records.digest import with_digest


class Done(NamedTuple):
    """What a command ended with."""

    returncode: int
    stdout: str
    stderr: str


Gangway = Callable[..., Done]


@pytest.fixture
def gangway() -> Gangway:
    def call(*words: object) -> Done:
        result = CliRunner().invoke(app, [str(word) for word in words])
        if isinstance(result.exception, InputError):
            return Done(2, result.stdout, str(result.exception))
        return Done(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    own = new_signing_key()
    texts = {"own": own, "own.pub": public_half(own), "other.pub": public_half(new_signing_key())}
    (tmp_path / "keys").mkdir()
    for name, text in texts.items():
        (tmp_path / "keys" / name).write_text(text)
    return {name: tmp_path / "keys" / name for name in texts}


@pytest.fixture
def run(suite_folder: Path, tmp_path: Path) -> Path:
    """One run's directory."""
    return Path(shutil.copytree(suite_folder / "aws-s0", tmp_path / "run"))


def test_the_commands_say_valid_unsigned_or_tampered(run: Path, keys: dict[str, Path], gangway: Gangway) -> None:
    def report(*more: str) -> Done:
        return gangway("report", str(run), "--format", "json", *more)

    own, other = str(keys["own.pub"]), str(keys["other.pub"])
    unsigned = report("--key", own)
    assert (unsigned.returncode, "unsigned" in unsigned.stderr) == (0, True)
    assert "sign" not in report().stderr, "nobody asked"
    assert gangway("sign", str(run), "--key", str(keys["own"])).returncode == 0
    done = report("--key", own)
    (state,) = json.loads(done.stdout)["signatures"].values()
    assert state == {"state": "valid", "key": read_public_key(keys["own.pub"], "--key")}
    assert "valid: signed by" in done.stderr
    assert "not verified" in report().stderr
    refused = report("--key", other)
    assert (refused.returncode, "another key" in refused.stderr) == (2, True)
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(with_digest({**record, "seed": record["seed"] + 1})))
    for command in (("report", str(run), "--format", "csv"), ("reproduce", str(run))):
        tampered = gangway(*command)
        assert (tampered.returncode, "changed after it was signed" in tampered.stderr) == (2, True), command
    assert gangway("sign", str(run), "--key", str(keys["own"])).returncode == 0, "its owner may change his mind"
    assert report("--key", own).returncode == 0


@pytest.mark.slow
def test_reproduce_takes_an_unsigned_record_by_a_key_only_where_it_is_told_to(
    run: Path, keys: dict[str, Path], gangway: Gangway
) -> None:
    own = str(keys["own.pub"])
    refused = gangway("reproduce", str(run), "--key", own)
    assert refused.returncode == 2
    assert f"{run / 'run.json'}: is unsigned" in refused.stderr
    assert "add --allow-unsigned" in refused.stderr
    # What it says after that is of its data, which is not here.
    assert "is unsigned" not in gangway("reproduce", str(run), "--key", own, "--allow-unsigned").stderr
    assert "is unsigned" not in gangway("reproduce", str(run)).stderr, "nobody asked"
    assert gangway("sign", str(run), "--key", str(keys["own"])).returncode == 0
    assert "is unsigned" not in gangway("reproduce", str(run), "--key", own).stderr
    forged = gangway("reproduce", str(run), "--key", str(keys["other.pub"]), "--allow-unsigned")
    assert (forged.returncode, "another key" in forged.stderr) == (2, True), "a forgery is taken by no flag"


def test_report_warns_of_unsigned_runs_by_a_key(run: Path, keys: dict[str, Path], gangway: Gangway) -> None:
    done = gangway("report", str(run), "--format", "csv", "--key", str(keys["own.pub"]))
    (line,) = [line for line in done.stderr.splitlines() if "unsigned" in line]
    assert line.startswith("warning: ")


def test_one_forged_run_among_others_stops_the_report(suite_folder: Path, run: Path, gangway: Gangway) -> None:
    (run / "run.json.sig").write_text("AAAA BBBB\n")
    assert gangway("report", str(suite_folder), str(run), "--format", "csv").returncode == 2


def test_a_key_is_made_for_ones_own_eyes_and_over_no_other(run: Path, tmp_path: Path, gangway: Gangway) -> None:
    made = tmp_path / "lab.pem"
    assert gangway("sign", str(run), "--key", str(made), "--make-key").returncode == 0
    assert made.stat().st_mode & 0o777 == 0o600
    assert gangway("report", str(run), "--format", "csv", "--key", f"{made}.pub").returncode == 0
    before = made.read_text()
    again = gangway("sign", str(run), "--key", str(made), "--make-key")
    assert (again.returncode, made.read_text()) == (2, before)
