"""Two ways to the same StackConfig: a stack file, and the engine's configuration; whose settings are whose."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file, from_pulumi

Values = dict[str, Any]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Values], StackConfig]:
    """The configuration as the engine hands it over, every value a string; gives what is read from it."""

    def read(values: Values) -> StackConfig:
        as_text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(as_text))
        return from_pulumi()

    return read


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Values], StackConfig]:
    """The configuration from a file."""

    def read(values: Values) -> StackConfig:
        path = tmp_path / "Pulumi.stack.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return from_file(path)

    return read


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_a_stack_has_its_files_name(tmp_path: Path, demo_file: Path, ending: str) -> None:
    for name in ("Pulumi.team-a", "team-a"):
        path = tmp_path / f"{name}.{ending}"
        path.write_text(demo_file.read_text("utf-8"), "utf-8")
        assert from_file(path).stack == "team-a"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml")), ids=lambda path: path.name
)
def test_the_engine_and_the_file_say_the_same(path: Path, engine: Callable[[Values], StackConfig]) -> None:
    values = yaml.safe_load(path.read_text("utf-8"))["config"]
    # The engine is a program in Go, which hands a time over as text.
    given = json.loads(json.dumps(values, default=lambda time: time.isoformat()))
    names = {"stack", "stack_name"}
    assert engine(given).model_dump(exclude=names) == from_file(path).model_dump(exclude=names)


def test_the_engines_times_are_read_as_go_prints_them(
    engine: Callable[[Values], StackConfig], demo_values: Values
) -> None:
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "ends_at": "2035-07-02 13:30:00 +0200 CEST"}
    config = engine({**demo_values, "gangway:cluster": {**demo_values["gangway:cluster"], "capacity": [block]}})
    (rung,) = config.cluster.capacity
    assert rung.model_dump(mode="json")["ends_at"] == "2035-07-02T13:30:00+02:00"


FOREIGN: list[tuple[str, Any, str]] = [
    ("aws:profile", "production", "choose the account by the environment, such as AWS_PROFILE"),
    ("aws:assumeRole", {"roleArn": "arn"}, "choose the account by the environment, such as AWS_PROFILE"),
    ("aws:region", "eu-west-1", "leave it out, or set gangway:region: eu-west-1"),
    ("region", "us-east-2", "write gangway:region"),
    ("gangwya:region", "us-east-2", "write gangway:region"),
    ("gcp:project", "x", "name the project in gangway:gcp, and the account by GOOGLE_APPLICATION_CREDENTIALS"),
    ("gcp:region", "europe-west1", "leave it out, or set gangway:region: europe-west1"),
    ("azure-native:location", "westus", "leave it out, or set gangway:region: westus"),
    ("azure-native:subscriptionId", "x", "name the subscription in gangway:azure, and the account by `az login`"),
    ("kubernetes:context", "x", "leave it out"),
]


@pytest.mark.parametrize(("key", "value", "fix"), FOREIGN)
@pytest.mark.parametrize("way", ["engine", "file"])
def test_a_setting_that_would_be_ignored_is_refused(
    request: pytest.FixtureRequest, demo_values: Values, way: str, key: str, value: Any, fix: str
) -> None:
    with pytest.raises(InputError) as caught:
        request.getfixturevalue(way)({**demo_values, key: value})
    assert caught.value.place.endswith(f": {key}")
    assert fix in caught.value.fix
    assert "production" not in str(caught.value), "it may be a secret"


@pytest.mark.parametrize("way", ["engine", "file"])
def test_a_providers_region_without_the_stacks_own_says_what_is_missing(
    request: pytest.FixtureRequest, demo_values: Values, way: str
) -> None:
    values = {key: value for key, value in demo_values.items() if key != "gangway:region"}
    with pytest.raises(InputError) as caught:
        request.getfixturevalue(way)({**values, "aws:region": "eu-west-1"})
    assert "None" not in str(caught.value)
    assert "set gangway:region: eu-west-1" in caught.value.fix


@pytest.mark.parametrize("way", ["engine", "file"])
def test_settings_of_the_engine_and_the_same_region_pass(
    request: pytest.FixtureRequest, demo_values: Values, way: str
) -> None:
    config = request.getfixturevalue(way)({**demo_values, "aws:region": "us-east-2", "pulumi:tags": {"a": "b"}})
    assert config.region == "us-east-2"


@pytest.mark.parametrize("way", ["engine", "file"])
def test_every_mistake_is_told_at_once_with_its_place(
    request: pytest.FixtureRequest, demo_values: Values, way: str
) -> None:
    wrong = {**demo_values, "gangway:encryption": "none", "gangway:job": {"preset": "dcgan-digits", "kimg": 0}}
    with pytest.raises(ExceptionGroup) as caught:
        request.getfixturevalue(way)(wrong)
    mistakes = [mistake for mistake in caught.value.exceptions if isinstance(mistake, InputError)]
    places = {mistake.place.rpartition(": ")[2] for mistake in mistakes}
    assert places == {"gangway:encryption", "gangway:job.kimg", "gangway:job.max_hours"}
    assert all(mistake.fix for mistake in mistakes)


@pytest.mark.parametrize("way", ["engine", "file"])
def test_the_name_is_no_setting(request: pytest.FixtureRequest, demo_values: Values, way: str) -> None:
    with pytest.raises(InputError, match="the file's name is the stack's name"):
        request.getfixturevalue(way)({**demo_values, "gangway:stack": "x"})


def test_what_is_no_json_is_told_by_the_model(engine: Callable[[Values], StackConfig], demo_values: Values) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        engine({**demo_values, "gangway:job": "dcgan-digits for 3 hours"})
    (mistake,) = caught.value.exceptions
    assert isinstance(mistake, InputError)
    assert (mistake.place.rpartition(": ")[2], mistake.value) == ("gangway:job", "dcgan-digits for 3 hours")
