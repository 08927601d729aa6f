"""A folder of jobs that a link leads to: whoever owns the link, or may replace it, chooses what runs."""

import os
from pathlib import Path

import pytest

from gangway.components.core.findings import Severity
from gangway.jobs.job_folder import sharing_findings
from tests.other_users import MALLORY

pytestmark = pytest.mark.attack("a folder of jobs", "links of others on the path that is named")


def _messages(folder: Path, severity: Severity = Severity.ERROR) -> list[str]:
    return [f"{each.path}: {each.message}" for each in sharing_findings(folder) if each.severity is severity]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "q").mkdir(mode=0o755)
    return tmp_path / "q"


def test_a_link_of_ones_own_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("q")
    assert _messages(tmp_path / "link") == _messages(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a link to somebody else")
@pytest.mark.parametrize("name", ["link", "link/below", "second", "way/../link"])
def test_root_follows_no_link_of_another_user(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / "below").mkdir(mode=0o755)
    (tmp_path / "way").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("q")
    (tmp_path / "second").symlink_to(tmp_path / "link")
    os.chown(tmp_path / "link", MALLORY, MALLORY, follow_symlinks=False)
    (message,) = _messages(tmp_path / name)
    assert message.startswith(f"{tmp_path / 'link'}: this link belongs to ")


def test_a_link_in_a_folder_of_everybody_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open/link").symlink_to(folder)
    (message,) = _messages(tmp_path / "open/link")
    assert "other users can write to it" in message
    (tmp_path / "open").chmod(0o1777)
    assert _messages(tmp_path / "open/link") == []


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    from gangway.jobs.job_folder import _links

    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert len(list(_links(tmp_path / "a"))) > 1
