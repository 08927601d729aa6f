"""What of a command's run folder is opened for who puts it: its own regular files, whatever else it has put there."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gangway.images.node import run_folder

SHOW = (
    "import json, os, pathlib; root = pathlib.Path(os.environ['RESULTS']); "
    "files = {str(p.relative_to(root)): p.read_text() for p in root.rglob('*') if p.is_file()}; "
    "pathlib.Path('{out}').write_text(json.dumps(files)); "
    "pathlib.Path('{marks}/results').write_text(os.environ['SUM_OF_RESULTS'])"
)


@pytest.fixture
def put(tmp_path: Path) -> Any:
    """Runs it; what the command saw, or None where it was not run."""
    (tmp_path / "run").mkdir()
    (tmp_path / "marks").mkdir()
    out = tmp_path / "out.json"

    def run() -> dict[str, str] | None:
        out.unlink(missing_ok=True)
        show = SHOW.replace("{out}", str(out)).replace("{marks}", str(tmp_path / "marks"))
        argv = [str(tmp_path / "run"), str(os.getuid()), str(tmp_path / "marks"), sys.executable, "-c", show]
        assert run_folder.main(argv) == 0
        found: dict[str, str] | None = json.loads(out.read_text()) if out.exists() else None
        return found

    return run


def test_nothing_new_is_not_put(put: Any, tmp_path: Path) -> None:
    assert put() is None
    (tmp_path / "run/a").write_text("1")
    assert put() == {"a": "1"}
    assert put() is None
    (tmp_path / "run/b").write_text("2")
    assert put() == {"a": "1", "b": "2"}


def test_a_folder_that_is_not_there_is_nothing(put: Any, tmp_path: Path) -> None:
    (tmp_path / "run").rmdir()
    assert put() is None


def test_no_link_is_followed_and_no_pipe_is_opened(put: Any, tmp_path: Path, capfd: Any) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("of others")
    run = tmp_path / "run"
    (run / "mine").write_text("1")
    (run / "link").symlink_to(secret / "key")
    (run / "folder").symlink_to(secret)
    os.mkfifo(run / "pipe")
    assert put() == {"mine": "1"}
    told = capfd.readouterr().err
    assert all(f"'{name}'" in told for name in ("link", "folder", "pipe"))


def test_the_launchers_folder_stays_here(put: Any, tmp_path: Path) -> None:
    for folder in (".launch/key", ".results-gone", "deep/.launch"):
        (tmp_path / "run" / folder).mkdir(parents=True)
        (tmp_path / "run" / folder / "file").write_text("x")
    assert put() == {"deep/.launch/file": "x"}


def test_bounds(put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "MAX_FILES", 2)
    monkeypatch.setattr(run_folder, "MAX_DEPTH", 1)
    (tmp_path / "run/a/b").mkdir(parents=True)
    for name in ("a/1", "a/b/2", "c", "d"):
        (tmp_path / "run" / name).write_text(name)
    assert put() == {"a/1": "a/1", "c": "c"}
