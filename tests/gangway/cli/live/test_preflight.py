"""`gangway preflight`: what it prints, its exit codes, and errors before any check."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.cli.live.preflight import preflight
from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.live.preflight.check import Check, NoAnswerError, Result
from gangway.stacks.base import registry


def refuse() -> Result:
    raise NoAnswerError("no permission for iam:GetRole: denied", "ask for the permission iam:GetRole")


FINE = Check("zones in us-east-2", "ec2:DescribeAvailabilityZones", lambda: Result.ok("us-east-2a"))
REFUSED = Check("service role", "iam:GetRole", refuse)
SHORT = Check("quota P", "service-quotas:GetServiceQuota", lambda: Result.error("limit 0", "request it"), "gangway:x")
HOSTILE = Check("image", "ec2:DescribeImages", lambda: Result.ok("[bold]\x1b]0;owned\x07\nok  forged line"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def command(*checks: Check, words: tuple[str, ...] = ("hosts-lab",)) -> Any:
        adapter = SimpleNamespace(get_checks=lambda _plan: list(checks))
        monkeypatch.setattr(registry, "load_adapter", lambda _name, _purpose: adapter)
        return CliRunner().invoke(app, ["preflight", *words])

    return command


def test_every_line_has_the_answer_its_source_and_a_fix_and_the_worst_is_first(run: Any) -> None:
    done = run(FINE, REFUSED, SHORT)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "hosts-lab on hosts, checked with your credentials",
        "",
        "error    quota P",
        "         limit 0  [service-quotas:GetServiceQuota]  gangway:x",
        "         fix: request it",
        "unknown  service role",
        "         no permission for iam:GetRole: denied  [iam:GetRole]",
        "         fix: ask for the permission iam:GetRole",
        "ok       zones in us-east-2",
        "         us-east-2a  [ec2:DescribeAvailabilityZones]",
        "",
        "1 error, 1 unknown, 1 ok",
    ]


def test_errors_of_the_plan_count_too(run: Any, stack_file: Any) -> None:
    def later_zone(values: dict[str, Any]) -> None:
        reserved = {"kind": "reservation", "id": "cr-0123456789abcdef0", "zone": "us-east-2b"}
        values["gangway:cluster"] = {**values["gangway:cluster"], "zone": "us-east-2a", "capacity": [reserved]}

    done = run(FINE, words=(str(stack_file(later_zone)),))
    assert done.exit_code == 1
    assert "error    capacity.other-zone" in done.stdout
    assert "[gangway plan, offline]  gangway:cluster.capacity[0].zone" in done.stdout


def test_an_unknown_check_is_no_error(run: Any) -> None:
    assert run(FINE, REFUSED).exit_code == 0


def test_no_answer_at_all_is_not_a_stack_without_errors(run: Any) -> None:
    done = run(REFUSED, REFUSED)
    assert isinstance(done.exception, InputError)
    assert "no permission for iam:GetRole" in str(done.exception)
    assert "fix:     ask for the permission iam:GetRole" in str(done.exception)
    assert "2 unknown" in done.stdout


def test_json_has_the_same_content(run: Any) -> None:
    done = run(FINE, REFUSED, SHORT, words=("hosts-lab", "--json"))
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (found["stack"], found["provider"]) == ("hosts-lab", "hosts")
    assert found["counts"] == {"error": 1, "warning": 0, "unknown": 1, "ok": 1}
    assert found["checks"][2] == {
        "state": "error",
        "path": "gangway:x",
        "subject": "quota P",
        "answer": "limit 0",
        "source": "service-quotas:GetServiceQuota",
        "fix": "request it",
    }


def test_a_hostile_name_stays_in_its_line(run: Any) -> None:
    done = run(HOSTILE)
    assert "[bold]\\x1b]0;owned\\x07\\nok  forged line" in done.stdout


def test_bad_input_and_missing_credentials_end_before_any_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_login(_plan: Any) -> Any:
        raise InputError("AWS", "no valid credentials", fix="aws sso login")

    adapter = SimpleNamespace(get_checks=refuse_login)
    monkeypatch.setattr(registry, "load_adapter", lambda _name, _purpose: adapter)
    with pytest.raises(InputError, match="aws sso login"):
        preflight("hosts-lab", as_json=False)
    with pytest.raises(InputError, match="no-such-stack"):
        preflight("no-such-stack", as_json=False)


def test_every_provider_has_checks() -> None:
    assert registry.providers_with_adapter("preflight") == registry.provider_names()
    for name in registry.provider_names():
        assert callable(registry.load_adapter(name, "preflight").get_checks)
