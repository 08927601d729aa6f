"""What stacks ask their clouds before the first resource: by one wrapper, and a refusal is one message."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.core.lookup import ANSWER_LIMIT, LookupFailedError
from stacks.config.loader import from_file
from stacks.planning.recording import PlaceholderCloud, record
from stacks.program import build

REPO = Path(__file__).resolve().parents[3]
_INVOKE = re.compile(r"(get|list|read|invoke)_|invoke$")
"""How the SDKs' generator names functions of a provider."""
OF_THE_ENGINE = ("get_config_env", "get_monitor", "get_organization", "get_project", "get_stack")
"""Of Pulumi's core: they ask no cloud. The stack's own state is read in `ownership` alone."""
QUICK = ("aws-demo", "aks-ndv5", "gcp-v5e-pod")
STACKS = sorted(path.name for path in REPO.glob("stacks/Pulumi.*.yaml"))
# Of a cluster that the stack creates, so it cannot come first.
AFTER_ITS_CLUSTER = "azure-native:containerservice:listManagedClusterUserCredentials"
REFUSAL = "AccessDenied:\n\tno \x1b[31mright " + "x" * 5000


class _Refusing(PlaceholderCloud):
    """Counts what is asked and declared; the `refused`-th question gets an error."""

    def __init__(self, refused: int | None, answer: str = REFUSAL) -> None:
        self.asked: list[str] = []
        self.declared: list[str] = []
        self._refused, self._answer = refused, answer

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        self.declared.append(type_token)
        return super().__call__(type_token, name, inputs)

    def ask(self, function: str, args: Mapping[str, Any]) -> Any:
        self.asked.append(function)
        if self._refused == len(self.asked) - 1:
            return {}, [("", self._answer)]  # as a provider says it: no result, and failures of its properties
        return super().ask(function, args)


def _build(name: str, cloud: _Refusing) -> None:
    config = from_file(REPO / "stacks" / name)
    record(lambda: build(config), cloud, config.stack)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n.split(".")[1] in QUICK else pytest.mark.slow) for n in STACKS]
)
def test_every_refused_lookup_of_a_stack_is_one_message_before_its_first_resource(name: str) -> None:
    calm = _Refusing(None)
    _build(name, calm)
    for position, function in enumerate(calm.asked):
        cloud = _Refusing(position)
        with pytest.raises((LookupFailedError, pulumi.RunError)) as caught:
            _build(name, cloud)
        text = str(caught.value)
        assert re.match(r"gangway:[a-z_.]+: cannot look up .+ in .+; the cloud says: ", text), text
        assert re.search(r"\n  fix:     .*(gangway:|then run `up` again)", text), text
        assert "AccessDenied: no \\x1b[31mright xxx" in text, "in one line, and visible"
        assert len(text) < 2 * ANSWER_LIMIT
        if function != AFTER_ITS_CLUSTER:
            assert [kind for kind in cloud.declared if not kind.startswith("pulumi:providers:")] == []


@pytest.mark.parametrize("name", ["Pulumi.gcp-v5e-pod.yaml"])
def test_a_new_projects_apis_are_asked_again_once_they_are_enabled(name: str) -> None:
    calm = _Refusing(None)
    _build(name, calm)
    number = calm.asked.index("gcp:organizations/getProject:getProject")
    cloud = _Refusing(number, "googleapi: Error 403: ..., SERVICE_DISABLED")
    _build(name, cloud)
    assert cloud.asked.count("gcp:organizations/getProject:getProject") > 1
    assert set(cloud.declared) == set(calm.declared)


def test_a_mistake_of_ours_is_no_answer_of_the_clouds() -> None:
    from components.core.lookup import Lookup, look_up

    with pytest.raises(TypeError):
        look_up(Lookup("x", "y", "gangway:z", "f"), len, 3)  # type: ignore[arg-type]  # the mistake


def _product_files() -> list[Path]:
    return [path for top in ("components", "stacks") for path in sorted((REPO / top).rglob("*.py"))]


def _outside_the_wrapper(source: str) -> list[str]:
    """The functions of Pulumi's SDKs in a module, as written, that are no argument of `look_up`."""
    tree = ast.parse(source)
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names if a.name.startswith("pulumi")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pulumi"):
            names |= {a.asname or a.name for a in node.names}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "look_up"]
    arguments = [argument for call in calls for argument in call.args]
    # `function = aws.x.get_y`, for a line's length, and then `look_up(lookup, function)`.
    held = {ast.unparse(argument) for argument in arguments if isinstance(argument, ast.Name)}
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    allowed = {id(argument) for argument in arguments}
    allowed |= {id(node.value) for node in assigned if {ast.unparse(target) for target in node.targets} <= held}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name)
        and re.fullmatch(r"[\w.]+", ast.unparse(node))
        and ast.unparse(node).partition(".")[0] in names
        and ast.unparse(node).rpartition(".")[2] not in OF_THE_ENGINE
        and _INVOKE.match(ast.unparse(node).rpartition(".")[2])
        and id(node) not in allowed
    ]


def test_no_function_of_an_sdk_is_called_outside_the_wrapper() -> None:
    found = {str(path.relative_to(REPO)): _outside_the_wrapper(path.read_text("utf-8")) for path in _product_files()}
    assert found.pop("stacks/providers/ownership.py") == ["pulumi.runtime.invoke"]
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pulumi_aws as aws\nx = aws.ssm.get_parameter_output(name='x').value", 1),
        ("import pulumi_aws as aws\nlook_up(q, aws.ssm.get_parameter, name='x')", 0),
        ("import pulumi_aws as aws\nf = aws.get_caller_identity\nlook_up(q, f)\naws.get_caller_identity()", 1),
        ("from pulumi_gcp import storage\nstorage.get_project_service_account(project='x')", 1),
        ("import pulumi\npulumi.runtime.invoke('aws:x', {})", 1),
        ("from pulumi.runtime import invoke_async\ninvoke_async('aws:x', {})", 1),
        ("import pulumi_azure_native as azure\nazure.compute.VirtualMachine('x').get_provider", 0),
    ],
)
def test_the_walk_sees_what_it_must(source: str, found: int) -> None:
    assert len(_outside_the_wrapper(source)) == found, source
