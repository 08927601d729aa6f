"""Two ways to the same StackConfig: a stack file, and the engine's configuration; whose settings are whose."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import find_stack_file, from_file, from_pulumi, read_settings

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


def mistakes_in(path: Path) -> list[InputError]:
    """Every mistake `read_settings` finds."""
    try:
        read_settings(path)
    except InputError as error:
        return [error]
    except ExceptionGroup as group:
        return [error for error in group.exceptions if isinstance(error, InputError)]
    return []


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Where a test writes its stack file."""
    return tmp_path / "Pulumi.bad.yaml"


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("config: [", "not valid YAML", ", line 2"),
        ("config:\n  a: b: c\n", "not valid YAML", ", line 2"),
        ("config: \0", "not valid YAML: unacceptable character", ""),
        ("config: 1\n---\nconfig: 2", "not valid YAML", ", line 2"),
        ("runtime: python\n", "has no `config:` mapping", ""),
        ("config:\n", "has no `config:` mapping", ""),
        ("- config\n", "has no `config:` mapping", ""),
        ("", "has no `config:` mapping", ""),
        ("config: {x: 2026-13-41}\n", "cannot be read: month must be in 1..12", ""),
        ("config: {x: !mine y}\n", "not valid YAML", ", line 1"),
        ("config: {}\ngangway:network: {}\n", "unknown key outside `config:`", ": gangway:network"),
        ("a: " + "[" * 50_000, "nested too deeply", ""),
        ("- " * 50_000, "nested too deeply", ""),
        ("config:\n  gangway:tags: &a {x: *a}\n", "more than 5000 values", ""),
        ("#" * 1_000_001, "too large for a stack file", ""),
    ],
)
def test_a_file_that_is_no_stack_file(written: Path, text: str, problem: str, place: str) -> None:
    written.write_text(text)
    (mistake,) = mistakes_in(written)
    assert mistake.place == f"{written}{place}"
    assert mistake.problem.startswith(problem)
    assert "\n" not in mistake.problem
    assert mistake.fix


@pytest.mark.parametrize(
    ("text", "got", "allowed"),
    [
        ("config:\n  a: b: c\n", "a: b: c", "YAML"),
        ("", "an empty file", "`config:` with indented settings"),
        ("runtime: python\nname: x\n", "the keys runtime, name", "`config:` with indented settings"),
        ("- config\n", ["config"], "`config:` with indented settings"),
    ],
)
def test_what_was_read_and_what_would_do_are_told(written: Path, text: str, got: object, allowed: str) -> None:
    written.write_text(text)
    (mistake,) = mistakes_in(written)
    assert mistake.value == got
    assert allowed in mistake.allowed


def test_a_bomb_of_aliases_does_not_go_off(written: Path) -> None:
    lines = ["  a0: &a0 [x, x]", *(f"  a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    written.write_text("\n".join(["config:", *lines]))
    (mistake,) = mistakes_in(written)
    assert mistake.problem.startswith("more than 5000 values")


def test_a_few_aliases_are_fine(written: Path) -> None:
    written.write_text("config:\n  gangway:a: &a {x: 1}\n  gangway:b: {<<: *a, y: 2}\n")
    assert read_settings(written) == {"gangway:a": {"x": 1}, "gangway:b": {"x": 1, "y": 2}}


@pytest.mark.parametrize("content", [b"config: \xff\xfe", "config: {}".encode("utf-16"), b"\x7fELF\xd0\x01"])
def test_a_file_that_is_no_text(written: Path, content: bytes) -> None:
    written.write_bytes(content)
    (mistake,) = mistakes_in(written)
    assert (mistake.place, mistake.problem) == (str(written), "not UTF-8 text")
    assert mistake.fix.startswith("save it as UTF-8")


def test_a_missing_file_and_one_that_may_not_be_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mistake,) = mistakes_in(written)
    assert mistake.problem == "cannot be read: No such file or directory"

    def refuse(path: Path, *rest: int) -> int:
        raise PermissionError(13, "Permission denied")

    written.touch()
    monkeypatch.setattr(os, "open", refuse)  # root, as whom tests may run, reads everything
    (mistake,) = mistakes_in(written)
    assert mistake.problem == "cannot be read: Permission denied"
    assert mistake.fix == f"allow reading it: chmod u+r {written}"


@pytest.mark.parametrize(
    ("content", "fits"),
    [
        (b"config:\r\n  gangway:a: x\r\n", True),
        (b"\xef\xbb\xbfconfig:\n  gangway:a: x\n", True),
        (b"\xef\xbb\xbfconfig:\r\n  gangway:a: x\r\n", True),
        (b"config:\n  gangway:a:\tx\n", True),
        (b"config:\n\tgangway:a: x\n", False),
    ],
)
def test_what_windows_editors_write(written: Path, content: bytes, fits: bool) -> None:
    written.write_bytes(content)
    if fits:
        assert read_settings(written) == {"gangway:a": "x"}
        return
    (mistake,) = mistakes_in(written)
    assert mistake.place == f"{written}, line 2"
    assert mistake.fix == "indent with spaces instead of tabs"


@pytest.mark.parametrize(
    ("text", "line", "key", "first"),
    [
        ("config:\n  gangway:region: a\n  gangway:region: b\n", 3, "gangway:region", 2),
        ("config:\n  gangway:x: {a: 1,\n    a: 1}\n", 3, "a", 2),
        ("config: {}\nconfig: {}\n", 2, "config", 1),
        ("config:\n  pulumi:tags:\n    - {a: 1, b: 2, 'a': 3}\n", 3, "a", 3),
    ],
)
def test_a_key_written_twice_is_an_error_with_its_line(
    written: Path, text: str, line: int, key: str, first: int
) -> None:
    written.write_text(text)
    (mistake,) = mistakes_in(written)
    assert mistake.place == f"{written}, line {line}: {key}"
    assert f"first in line {first}" in mistake.problem
    assert mistake.fix == "remove one of them"


@pytest.mark.parametrize(
    ("spelled", "read_as", "fix"),
    [
        ("yes", "true or false", "put it in quotes: team: 'yes'"),
        ("off", "true or false", "put it in quotes: team: 'off'"),
        ("0123", "a number", "put it in quotes: team: '0123'"),
        ("0x1f", "a number", "put it in quotes: team: '0x1f'"),
        ("1:30", "a number", "put it in quotes: team: '1:30'"),
        ("60_000", "a number", "put it in quotes: team: '60_000'"),
        ("1:30.5", "a number", "put it in quotes: team: '1:30.5'"),
        ("2026-01-02", "a date", "put it in quotes: team: '2026-01-02'"),
        ("2026-13-41", "a date", "put it in quotes: team: '2026-13-41'"),
        ("2026-07-01T11:30:00", "a date", "put it in quotes: team: '2026-07-01T11:30:00'"),
        ("!!binary aGk=", "something tagged !!binary", 'write "aGk=" in quotes for text'),
        ("!mine x", "something tagged !mine", 'write "x" in quotes for text'),
        ("!!set {a}", "something tagged !!set", "write it without the tag"),
    ],
)
def test_what_yaml_reads_as_something_else_is_told(written: Path, spelled: str, read_as: str, fix: str) -> None:
    written.write_text(f"config:\n  gangway:tags:\n    team: {spelled}\n")
    (mistake,) = mistakes_in(written)
    assert mistake.place == f"{written}, line 3: gangway:tags.team"
    assert mistake.problem == f"YAML reads this as {read_as}"
    assert mistake.fix == fix


@pytest.mark.parametrize(
    ("place", "spelled", "allowed", "fix"),
    [
        ("job.kimg", "5_000", "from 0.001 to 1000000000 (thousands of images)", "write kimg: 5000"),
        ("job.max_hours", "1:30", "a number from 0.01 to 672 (hours)", "write max_hours: 1.5"),
        ("job.terminate_when_done", "yes", "true or false", "write terminate_when_done: true"),
        ("job.keep_runs", "off", "true or false", "write keep_runs: false"),
        ("job.kimg", "yes", "from 0.001 to 1000000000 (thousands of images)", "write kimg: 150"),
        ("azure.budget_starts_on", "2026-11-01", "'2026-01-01'", "put it in quotes: budget_starts_on: '2026-11-01'"),
        ("x.y", "yes", "text, decimal numbers", 'write true or false, or "yes" in quotes for text'),
    ],
)
def test_the_setting_says_what_was_meant(written: Path, place: str, spelled: str, allowed: str, fix: str) -> None:
    section, key = place.split(".")
    written.write_text(f"config:\n  gangway:{section}:\n    {key}: {spelled}\n")
    (mistake,) = mistakes_in(written)
    assert mistake.place == f"{written}, line 3: gangway:{place}"
    assert (allowed in mistake.allowed, mistake.fix) == (True, fix)


def test_a_number_that_ends_at_its_comma_is_put_together(written: Path) -> None:
    written.write_text("config:\n  gangway:budget: {monthly_usd: 60,000, emails: [a@example.com]}\n")
    (mistake,) = mistakes_in(written)
    assert mistake.place == f"{written}, line 2: gangway:budget.monthly_usd"
    assert (mistake.value, mistake.fix) == ("60,000", "write monthly_usd: 60000")


@pytest.mark.parametrize("key", ["on", "3", "~", "2026-01-02"])
def test_a_key_that_is_no_text_is_told(written: Path, key: str) -> None:
    written.write_text(f"config:\n  gangway:tags:\n    {key}: x\n")
    (mistake,) = mistakes_in(written)
    assert mistake.place == f"{written}, line 3"
    assert mistake.problem.startswith("YAML reads this key as ")
    assert mistake.fix == f'write "{key}" in quotes for text'


def test_plain_values_are_read_as_they_look(written: Path) -> None:
    text = "a: 1\nb: -2.5\nc: .inf\nd: true\ne: '0123'\nf: 2026-07-01T11:30:00Z\ng:\nh: 1.0e+5\ni: x\n"
    written.write_text("config:\n  gangway:x:\n" + "".join(f"    {line}\n" for line in text.splitlines()))
    read = read_settings(written)["gangway:x"]
    assert read.pop("f").isoformat() == "2026-07-01T11:30:00+00:00"
    assert read == {"a": 1, "b": -2.5, "c": float("inf"), "d": True, "e": "0123", "g": None, "h": 1e5, "i": "x"}


def test_the_engines_own_settings_may_be_of_any_type(written: Path) -> None:
    written.write_text("encryptionsalt: v1:abc\nconfig:\n  pulumi:disable-default-providers: yes\n")
    assert read_settings(written) == {"pulumi:disable-default-providers": True}


@given(st.text(max_size=60))
def test_no_text_is_too_strange_for_a_message(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "Pulumi.any.yaml"
    path.write_text(text, "utf-8", errors="surrogatepass")
    assert all(mistake.place and mistake.problem and mistake.fix for mistake in mistakes_in(path))


def test_a_stack_is_found_by_name_or_by_path(tmp_path: Path, demo_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "mine.yml"
    other.write_text("config: {}")
    assert find_stack_file(str(other), demo_file.parent) == other
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aws-demo").mkdir()
    assert find_stack_file("aws-demo", demo_file.parent) == demo_file, "a folder of that name does not hide it"


def test_a_stack_file_without_a_project_says_what_is_missing(
    tmp_path: Path, demo_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.mine.yaml").write_text("config: {}")
    with pytest.raises(
        InputError, match=r"in this folder, which is not a project: it has no Pulumi.yaml and no __main__.py"
    ) as caught:
        find_stack_file("mine", demo_file.parent)
    assert "gangway init" in caught.value.fix
    (tmp_path / "Pulumi.yaml").write_text("name: ours")
    with pytest.raises(InputError, match=r"it has no __main__.py"):
        find_stack_file("mine", demo_file.parent)


def test_an_unknown_stack_names_those_there_are(demo_file: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_stack_file("aws-dmo", demo_file.parent)
    assert caught.value.place == "stack 'aws-dmo'"
    assert "aws-demo" in caught.value.allowed
    assert caught.value.fix == "did you mean 'aws-demo'?"


@pytest.mark.parametrize("name", ["none.yaml", "some/where/Pulumi.x.yml", "acme/aws-demo", "x" * 5000 + "/y"])
def test_a_missing_file_is_named(demo_file: Path, name: str) -> None:
    with pytest.raises(InputError, match="no such stack file") as caught:
        find_stack_file(name, demo_file.parent)
    assert (caught.value.place, caught.value.fix) == (name, "check the path")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_a_name_no_file_can_have_is_an_unknown_stack(demo_file: Path, name: str) -> None:
    with pytest.raises(InputError, match="no file Pulumi"):
        find_stack_file(name, demo_file.parent)


@pytest.mark.parametrize("name", ["", "  "])
def test_no_name_at_all(demo_file: Path, name: str) -> None:
    with pytest.raises(InputError, match="the name is empty") as caught:
        find_stack_file(name, demo_file.parent)
    assert "aws-demo" in caught.value.allowed


def test_a_folder_names_the_stack_files_in_it(tmp_path: Path, demo_file: Path) -> None:
    with pytest.raises(InputError, match="a folder, not a stack file") as caught:
        find_stack_file(str(demo_file.parent), demo_file.parent)
    assert caught.value.fix == f"name {min(demo_file.parent.glob('Pulumi.*.yaml'))}"
    with pytest.raises(InputError, match="a folder, not a stack file") as caught:
        find_stack_file(str(tmp_path), demo_file.parent)
    assert caught.value.fix


def test_a_device_is_no_stack_file(demo_file: Path) -> None:
    with pytest.raises(InputError, match="not a regular file") as caught:
        find_stack_file(os.devnull, demo_file.parent)
    assert caught.value.place == os.devnull
