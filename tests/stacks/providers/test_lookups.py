"""What stacks ask their clouds before the first resource: by one wrapper, and a refusal is one message."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gangway.components.core.lookup import ANSWER_LIMIT, LookupFailedError
from gangway.stacks.loading.loader import from_file
from gangway.stacks.program import build
from gangway.stacks.recording import PlaceholderCloud, record

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


@pytest.mark.slow
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
        assert re.match(r"gangway:[a-z_.0-9\[\]]+: cannot look up .+ in .+; the cloud says: ", text), text
        assert re.search(r"\n  fix:     .*(gangway:|then run `up` again)", text), text
        assert "AccessDenied: no \\x1b[31mright xxx" in text, "in one line, and visible"
        assert len(text) < 2 * ANSWER_LIMIT
        if function != AFTER_ITS_CLUSTER:
            assert [kind for kind in cloud.declared if not kind.startswith("pulumi:providers:")] == []


@pytest.mark.slow
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
    from gangway.components.core.lookup import Lookup, look_up

    with pytest.raises(TypeError):
        look_up(Lookup("x", "y", "gangway:z", "f"), len, 3)  # type: ignore[arg-type]  # the mistake


def _called_outside_the_wrapper(source: str) -> list[str]:
    """The functions of Pulumi's SDKs that a module calls itself: `look_up` takes them uncalled."""
    tree = ast.parse(source)
    names = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).startswith("pulumi")
    }
    called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        name
        for name in called
        if name.partition(".")[0] in names
        and _INVOKE.match(name.rpartition(".")[2])
        and name.rpartition(".")[2] not in OF_THE_ENGINE
    ]


@pytest.mark.slow
def test_no_function_of_an_sdk_is_called_outside_the_wrapper() -> None:
    files = [path for top in ("components", "stacks") for path in sorted((REPO / top).rglob("*.py"))]
    found = {str(path.relative_to(REPO)): _called_outside_the_wrapper(path.read_text("utf-8")) for path in files}
    assert found.pop("stacks/base/ownership.py") == ["pulumi.runtime.invoke"]
    assert {path: names for path, names in found.items() if names} == {}
    assert _called_outside_the_wrapper("import pulumi_aws as aws\naws.ssm.get_parameter_output(name='x')")
