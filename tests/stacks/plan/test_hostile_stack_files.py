"""A stack file is a contributor's: every text in it is refused with its name, or reaches nodes, dashboards, pages and
terminals as the text that it is. Judged by those that read it: YAML, bash, systemd, JSON, and cloud-init's own schema
where it is installed (Debian's package `cloud-init`).
"""

import base64
import gzip
import io
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pulumi
import pytest
import yaml
from rich.console import Console

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import leaves
from gangway.report.plans.show import Detail, show_plan
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file, stack_model
from gangway.stacks.plan.plan import Plan, make_plan
from tests.hostile import CANARY, LONG, SEEN, UNSEEN, Loc

pytestmark = pytest.mark.attack("a stack file's author", "texts that say more to bash, a unit, YAML or a terminal")
STACKS = {
    "aws": "aws-p5-spot",
    "gcp": "gcp-a3-spot",
    "azure": "azure-ndv5-spot",
    "openstack": "openstack-gpu",
    "hosts": "hosts-lab",
}
SCHEMA = Path(
    os.environ.get(
        "GANGWAY_CLOUD_INIT_SCHEMA",
        "/usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json",
    )
)
# What a text has around it to be one of its kind at all.
AROUND = {
    ("storage", "source"): "s3://my-bucket/{}",
    ("budget", "emails", 0): "{}@example.com",
    ("openstack", "auth_url"): "https://{}/v3",
    ("image", "prebuilt"): "registry.example.com/{}@sha256:" + "0123456789abcdef" * 4,
}
Values = dict[str, Any]


def places_of(schema: dict[str, Any], root: dict[str, Any], loc: Loc = ()) -> Iterator[Loc]:
    """Where the models take text, of lists the first item and of mappings the item `x`."""
    if "$ref" in schema:
        yield from places_of(root["$defs"][schema["$ref"].rpartition("/")[2]], root, loc)
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from places_of(option, root, loc)
    if schema.get("type") == "string" and not schema.keys() & {"enum", "const", "format"}:
        yield loc
    for name, child in schema.get("properties", {}).items():
        yield from places_of(child, root, (*loc, name))
    for part, child in ((0, schema.get("items")), ("x", schema.get("additionalProperties"))):
        if isinstance(child, dict):
            yield from places_of(child, root, (*loc, part))


@pytest.fixture(scope="module")
def text_places() -> list[Loc]:
    root = stack_model().model_json_schema()
    return [place for place in dict.fromkeys(places_of(root, root)) if place not in (("stack",), ("stack_name",))]


def with_text(values: Values, place: Loc, text: str) -> Values | None:
    """The values with the text there; None where the stack has no such section."""
    copied: Any = json.loads(json.dumps(values))
    at = copied
    for part, following in itertools.pairwise(place):
        if isinstance(part, int) and len(at) <= part:
            return None
        if isinstance(part, str):
            at.setdefault(part, [] if isinstance(following, int) else {})
        at = at[part]
        if not isinstance(at, dict | list):
            return None
    if isinstance(at, list) and not at:
        at.append("")
    at[place[-1]] = AROUND.get(place, "{}").replace("{}", text)
    return copied if place[0] in values or place[0] in ("estimate", "head", "image", "network") else None


def read(values: Values, path: Path, *, plans: bool = True) -> Plan | StackConfig | list[InputError]:
    """The plan or the settings, or what is wrong."""
    stack_file = {"config": {f"gangway:{key}": value for key, value in values.items()}}
    path.write_text(yaml.safe_dump(stack_file, allow_unicode=True), "utf-8", "surrogatepass")
    try:
        config = from_file(path)
        return make_plan(config) if plans else config
    except InputError as mistake:
        return [mistake]
    except ExceptionGroup as group:
        return [mistake for mistake in group.exceptions if isinstance(mistake, InputError)]


def is_named(mistakes: list[InputError], place: Loc) -> bool:
    """Whether one is at the text, at the section that it makes impossible, or at what its section lacks besides."""
    spelled = re.compile(r"\[\d+\]|\.x$")
    wanted = ".".join(part for part in place if isinstance(part, str)).removesuffix(".x")
    said = [spelled.sub("", mistake.place.rpartition("gangway:")[2]) for mistake in mistakes]
    both = zip(said, mistakes, strict=True)
    lacking = [each.rpartition(".")[0] for each, mistake in both if "missing" in str(mistake)]
    return (
        any(each and (each.startswith(wanted) or wanted.startswith(each)) for each in said)
        or any(str(place[-1]) in str(mistake) for mistake in mistakes)
        or wanted.rpartition(".")[0] in lacking
    )


def shipped(repo: Path, provider: str) -> Values:
    config = yaml.safe_load((repo / f"stacks/Pulumi.{STACKS[provider]}.yaml").read_text("utf-8"))["config"]
    return {key.removeprefix("gangway:"): value for key, value in config.items()}


@pytest.mark.parametrize(
    ("provider", "name"),
    [*((provider, "escape sequence") for provider in STACKS), *(("openstack", name) for name in (*UNSEEN, "long"))],
)
def test_what_nobody_sees_is_refused_everywhere(
    provider: str, name: str, repo: Path, text_places: list[Loc], tmp_path: Path
) -> None:
    text = {**UNSEEN, "long": LONG[:5000]}[name]
    base = shipped(repo, provider)
    put = {place: text for place in text_places if with_text(base, place, text)}
    mistakes = read(with_texts(base, put), tmp_path / "Pulumi.x.yaml", plans=False)
    assert isinstance(mistakes, list)
    assert len(put) > 20
    assert all(is_named(mistakes, place) for place in put)
    assert all(str(mistake).replace("\n", "").isprintable() for mistake in mistakes)
    assert max(len(str(mistake)) for mistake in mistakes) < 2000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "turn"),
    [
        *((provider, 0) for provider in ("aws", "openstack", "hosts")),
        *(pytest.param(provider, 0, marks=pytest.mark.slow) for provider in ("gcp", "azure")),
        *(pytest.param(provider, turn, marks=pytest.mark.slow) for provider in STACKS for turn in (4, 9)),
    ],
)
def test_what_is_seen_is_refused_or_stays_text(
    provider: str, turn: int, repo: Path, text_places: list[Loc], tmp_path: Path
) -> None:
    """Another text at each place, at each turn."""
    base, texts = shipped(repo, provider), list(SEEN.values())
    path, taken = tmp_path / "Pulumi.x.yaml", {}
    for number, place in enumerate(text_places):
        text = texts[(number + turn) % len(texts)]
        if (alone := with_text(base, place, text)) is None:
            continue
        found = read(alone, path, plans=False)
        if isinstance(found, list):
            assert is_named(found, place), (place, text, found)
        else:
            taken[place] = text
    while isinstance(plan := read(with_texts(base, taken), path), list):
        named = [place for place in taken if is_named(plan, place)]
        assert named, plan
        taken = {place: text for place, text in taken.items() if place not in named}
    assert isinstance(plan, Plan)
    if provider == "openstack":  # whose names are anybody's
        assert any(text in written for text in taken.values() for written in texts_of(plan))
    check_outputs(plan, tmp_path / "out")


def with_texts(values: Values, texts: Mapping[Loc, str]) -> Values:
    for place, text in texts.items():
        values = with_text(values, place, text) or values
    return values


def check_outputs(plan: Plan, folder: Path) -> None:
    """Every document that the plan makes, each by whatever reads it."""
    folder.mkdir()
    json.loads(json.dumps(plan.to_json()))
    printed = io.StringIO()
    show_plan(plan, Console(file=printed, force_terminal=True, color_system=None, width=100), Detail.FULL)
    assert printed.getvalue().replace("\n", "").isprintable()
    documents = [text for text in texts_of(plan) if text.startswith("#cloud-config")]
    for number, document in enumerate(documents):
        check_cloud_config(document, folder / str(number))
    for text in texts_of(plan):
        if text.startswith('{"'):
            json.loads(text)
        elif text.startswith("#!"):
            subprocess.run(["bash", "-n"], input=text.encode(), check=True)
    assert not list(folder.rglob(CANARY))


def texts_of(plan: Plan) -> list[str]:
    """All texts among the inputs, each once; packed ones as they are read."""
    found = (text for resource in plan.resources for text in texts_in(resource.inputs))
    return list(dict.fromkeys(found))


def texts_in(inputs: Any) -> Iterator[str]:
    for _, leaf in leaves(inputs):
        if isinstance(leaf, pulumi.AssetArchive):
            yield from texts_in(leaf.assets)
        elif isinstance(leaf, pulumi.StringAsset):
            yield leaf.text
        elif isinstance(leaf, str):
            yield gzip.decompress(base64.b64decode(leaf)).decode() if leaf.startswith("H4sI") else leaf


def check_cloud_config(document: str, folder: Path) -> None:
    config = yaml.safe_load(document)
    if SCHEMA.is_file():
        jsonschema.validate(config, json.loads(SCHEMA.read_text("utf-8")))
    units = []
    for file in config["write_files"]:
        path = folder / file["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"], "utf-8")
        if path.suffix in (".service", ".timer"):
            units.append(path)
        elif path.suffix in (".yaml", ".yml"):
            yaml.safe_load(file["content"])
        elif path.suffix == ".json":
            json.loads(file["content"])
        elif path.suffix in (".sh", ".env", ""):
            subprocess.run(["bash", "-n", str(path)], check=True)
        if path.suffix == ".env":
            evaluate(path)
    check_units(units, folder)


def evaluate(assignments: Path) -> None:
    """Nothing but bash: who says more than a word would run a program, or set what is not there."""
    command = f'set -euf; PATH=/nowhere; . "{assignments}"'
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", command],
        cwd=assignments.parent,
        env={},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()


def check_units(units: list[Path], folder: Path) -> None:
    if not units or not (analyze := shutil.which("systemd-analyze")):
        return
    (folder / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    for unit in units:
        unit.write_text(re.sub(r"^(Exec\w+=-?)\S+", r"\1/bin/true", unit.read_text(), flags=re.MULTILINE))
    done = subprocess.run(
        [analyze, "verify", "--man=no", *map(str, units)],
        env={"SYSTEMD_UNIT_PATH": f"{folder}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "gangway" in line]) == (0, []), done.stderr
