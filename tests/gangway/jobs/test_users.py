"""Whose a job is, of a login of one's own, of one that several share, and of one without a name."""

import getpass

import pytest

from gangway.jobs.kubernetes.engine import own_name


@pytest.mark.parametrize(
    ("login", "came_from", "name"),
    [("ann", "", "ann"), ("gangway", "ann", "ann"), ("gangway", "root", "gangway"), ("root", "ann", "root")],
)
def test_of_a_shared_login_it_is_whoever_came_by_sudo(
    monkeypatch: pytest.MonkeyPatch, login: str, came_from: str, name: str
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: login)
    monkeypatch.setenv("SUDO_USER", came_from)
    assert own_name() == name
