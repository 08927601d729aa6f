"""The sandbox under the real Pulumi engine, as `gangway demo` runs it where `pulumi` is on PATH."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.sandbox.cloud import MotoCloud
from gangway.sandbox.rows import SandboxRow
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan, run_program

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture
def command(need_cli: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from gangway.bench.pulumi_cli import find_cli

    monkeypatch.setenv("PATH", f"{need_cli}{os.pathsep}{os.environ['PATH']}")
    return find_cli(install=False)


def results(rows: Iterable[SandboxRow]) -> list[tuple[str, str, str]]:
    return [(row.type, row.name, str(row.status)) for row in rows]


def test_the_engine_builds_what_the_mocks_build(command: Any, demo_file: Path) -> None:
    from gangway.sandbox.engine import up

    config = from_file(demo_file)
    with MotoCloud(config.region) as cloud:
        run_program(config, cloud)
        by_mocks = results(cloud.read_back())
    seen: list[int] = []
    with MotoCloud(config.region) as cloud:
        changes = up(command, config, cloud, seen.append)
        by_engine = results(cloud.read_back())
    assert by_engine == by_mocks
    assert set(changes) == {"create"}
    assert len(by_engine) < changes["create"] <= len(seen), "components too; the engine has events of its own beside"


def test_what_the_program_refuses_is_one_error(command: Any, demo_file: Path) -> None:
    from gangway.sandbox.engine import up

    class Broken:
        def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            raise RuntimeError("the cloud is away")

        def ask(self, function: str, args: Any) -> dict[str, Any]:
            raise RuntimeError("the cloud is away")

    with pytest.raises(InputError, match="the cloud is away"):
        up(command, from_file(demo_file), Broken(), lambda made: None)


def test_the_engine_applies_a_stack_with_the_printed_policies_alone(command: Any, demo_file: Path) -> None:
    from gangway.live.permissions.needs import DEFAULT, make_needs
    from gangway.sandbox.engine import up
    from tests.gangway.live.permissions.moto_judge import Partial, simplified, watched

    config = from_file(demo_file)
    documents = make_needs("aws", lambda: make_plan(config), DEFAULT).documents
    with MotoCloud(config.region) as cloud, watched() as watch, cloud.as_user(simplified(documents)):
        changes = up(command, config, Partial(cloud, watch), lambda made: None)
        statuses = {str(row.status) for row in cloud.read_back()}
    assert watch.refused == []
    assert len(watch.seen) > 60
    assert set(changes) == {"create"}
    assert statuses <= {"read back equal", "accepted", "validated only"}
