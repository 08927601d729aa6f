"""Nothing tells a user to install Gangway by its name: there is no release, and anybody could register the name."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from gangway.cli import init
from gangway.components.core.findings import InputError
from gangway.stacks.config import paths

REPO = Path(__file__).resolve().parents[2]
NAME = "gangway-iac"
# The name after `install`, or as a requirement, with no place behind it.
BY_NAME = re.compile(
    rf"(install|add|download|wheel|run --with)\b[^\n`;]*?['\"\s]{NAME}(\[[a-z,]*\])?(?!\s*@|\w|\[)"
    rf"|^{NAME}(\[[a-z,]*\])?\s*([=<>~!]=?|$)",
    re.MULTILINE,
)


def _texts() -> list[Path]:
    tops = ["README.md", "docs", "stacks", "components", "trainer", "images", "examples", "pyproject.toml"]
    argv = ["git", "ls-files", *tops]
    listed = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    kinds = {".md", ".py", ".txt", ".toml", ".yaml", ".j2", ".sh"}
    return [REPO / name for name in listed if Path(name).suffix in kinds and (REPO / name).is_file()]


def test_no_text_installs_it_by_name() -> None:
    allowed = "Never install `gangway-iac` by its name", "Do not install `gangway-iac` by its name"
    found = [
        f"{path.relative_to(REPO)}: {match[0].strip()}"
        for path in _texts()
        for match in BY_NAME.finditer(path.read_text("utf-8", "replace"))
        if not any(words.startswith(match[0].strip(" \n")) or match[0].strip() in words for words in allowed)
    ]
    assert found == []
    assert all(map(BY_NAME.search, ("pip install 'gangway-iac[aws]'", "gangway-iac[aws]==0.1.0\n")))


def test_the_distribution_names_no_index() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    assert "urls" not in project


def test_a_project_that_knows_no_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "installed_from", lambda: None)
    with pytest.raises(InputError, match="Gangway has no release"):
        init._get_source(None)
    with pytest.raises(InputError, match="cannot install from this URL"):
        init._get_source("gangway-iac")
    assert init._get_source("git+https://example.com/g@0123") == "git+https://example.com/g@0123"
