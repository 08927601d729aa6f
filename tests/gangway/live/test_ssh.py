"""`gangway ssh`: the cloud's own tunnel as an argument list, to a node by number, name or id."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from typer.testing import CliRunner, Result

from gangway.cli.live import stack as commands
from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.finops.audit.running import Outputs
from gangway.jobs.systemd.scaling.base import Rest
from gangway.live.clouds import azure, gcp, hosts, openstack
from gangway.live.nodes import HEAD, Node, find_node, sorted_nodes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.providers.azure.settings import AzureConfig
from tests.gangway.live.conftest import GROUP, REGION, STACK

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
NODES = [Node("n1", "1", "a", "running"), Node("2", "two", "a", "running"), Node("n1", "3", "b", "running")]


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["ssh", *words])


def test_a_node_is_listed_named_and_reached_by_session_manager(
    make_stack: Callable[..., Any], aws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_stack()
    listed = ask("demo")
    assert listed.exit_code == 0, (listed.output, listed.exception)
    rows = [row.split() for row in listed.stdout.splitlines()]
    assert [row[3] for row in rows] == [HEAD, GROUP, GROUP]
    argv = f"aws ssm start-session --region {REGION} --target"
    for asked in ("2", rows[1][1], rows[1][2]):
        assert ask("demo", asked, "--print").stdout == f"{argv} {rows[1][2]}\n"
    unknown = ask("demo", "nonesuch")
    assert isinstance(unknown.exception, InputError)
    assert rows[2][2] in str(unknown.exception.allowed)
    monkeypatch.setenv("PATH", "/nonesuch")
    assert "Session Manager plug-in" in str(ask("demo", "1").exception)
    started: list[list[str]] = []
    monkeypatch.setattr(commands, "_replace_process", started.append)
    monkeypatch.setattr("shutil.which", lambda _: "/bin/aws")
    ask("demo", "1")
    assert started == [[*argv.split(), rows[0][2]]]


def test_a_node_is_found_by_name_id_or_number_and_never_by_chance() -> None:
    assert find_node(NODES, "two").id == "two"
    assert find_node(NODES, "2").id == "two", "a name wins over a number"
    assert find_node(NODES, "3").id == "3"
    for asked in ("n1", "0", "4", "-1", "²", ""):
        with pytest.raises(InputError):
            find_node(NODES, asked)
    with pytest.raises(InputError, match="wait until a node is up"):
        find_node([], "1")
    head = Node("z", "9", HEAD, "running")
    assert sorted_nodes([*NODES, head], {"group_names": ["b", "a"]}) == [head, NODES[2], NODES[1], NODES[0]]


def test_nodes_of_kubernetes_are_its_own(make_stack: Callable[..., Any]) -> None:
    config = {key: value for key, value in STACK.items() if key not in ("gangway:job", "gangway:storage")}
    make_stack(config={**config, "gangway:engine": {"kind": "kubernetes"}})
    refused = ask("demo", "1")
    assert isinstance(refused.exception, InputError)
    assert "kubectl exec" in refused.exception.fix


def with_azure(config: StackConfig, **settings: Any) -> StackConfig:
    return config.model_copy(update={"azure": config.section(AzureConfig).model_copy(update=settings)})


def test_azure_goes_through_bastion_or_says_which_setting_is_missing(
    azure_vm: Any, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = requests.Session()
    session.trust_env = False
    session.headers["Authorization"] = "Bearer person"
    azure_vm.tokens["person"] = "https://management.azure.com/"
    azure_vm.sets.clear()
    azure_vm.add_set("demo-0", 2, {"0": "running", "1": "deallocated"})
    monkeypatch.setattr(azure, "open_session", lambda *_: session)
    monkeypatch.setattr(azure, "API_URL", f"{azure_vm.url}/management.azure.com")
    config = with_azure(from_file(repo / "stacks/Pulumi.azure-ndv4.yaml"), subscription_id=SUBSCRIPTION)
    outputs = {"resource_group": "demo-rg", "group_names": ["demo-0"], "head_instance_id": "/x/virtualMachines/head"}
    nodes = azure.list_nodes(config, outputs)
    assert [(node.name, node.rung, node.state) for node in nodes] == [
        ("demo-0_0", "demo-0", "running"), ("demo-0_1", "demo-0", "deallocated"), ("head", HEAD, "unknown")
    ]  # fmt: skip
    with pytest.raises(InputError, match="only half up"):
        azure.list_nodes(config, Outputs({"group_names": ["demo-0"]}))
    with pytest.raises(InputError, match=r"azure\.bastion") as refused:
        azure.shell_argv(config, outputs, nodes[0])
    assert "az vmss run-command invoke" in refused.value.fix
    answer = SimpleNamespace(status_code=200, text="", json=lambda: {"value": [{"name": "door"}]})
    monkeypatch.setattr(azure, "open_session", lambda *_: SimpleNamespace(request=lambda *_, **__: answer))
    argv = azure.shell_argv(with_azure(config, bastion=True), outputs, nodes[0])
    assert argv[:4] == ["az", "network", "bastion", "ssh"]
    assert argv[argv.index("--name") + 1] == "door"
    assert argv[argv.index("--target-resource-id") + 1] == nodes[0].id


def test_azure_s_log_is_asked_of_the_workspace(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer's form: Microsoft Learn, "Query - Execute With Resource Id"."""
    calls: list[Any] = []
    columns = [{"name": name, "type": "string"} for name in ("TimeGenerated", "Node", "Line")]
    rows = [["2030-01-01T00:00:00.5Z", "demo_0", '{"message":"a line"}']]
    answer = {"tables": [{"name": "PrimaryResult", "columns": columns, "rows": rows}]}

    def request(method: str, url: str, **more: Any) -> Any:
        calls.append((method, url, more["json"]))
        return SimpleNamespace(status_code=200, text="", json=lambda: answer)

    resources: list[str] = []

    def open_session(_: str, resource: str) -> Any:
        resources.append(resource)
        return SimpleNamespace(request=request)

    monkeypatch.setattr(azure, "open_session", open_session)
    config = from_file(repo / "stacks/Pulumi.azure-ndv4.yaml")
    (found,) = azure.read_log(config, {"log_group": "/subscriptions/s/w"}, datetime(2030, 1, 1, tzinfo=UTC))
    assert (found.node, found.text) == ("demo_0", "a line")
    ((method, url, body),) = calls
    assert (method, url) == ("POST", "https://api.loganalytics.azure.com/v1/subscriptions/s/w/query")
    assert "datetime(2030-01-01T00:00:00+00:00)" in body["query"]
    assert resources == ["https://api.loganalytics.io"]


def test_google_s_nodes_and_log_have_the_nodes_names(gce: Any, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = from_file(repo / "stacks/Pulumi.gcp-a3-spot.yaml")
    rungs = len(config.cluster.capacity)
    names = [f"demo-{index}" for index in range(rungs)]
    managed = [{"name": "demo-0-a", "id": "123", "instanceStatus": "RUNNING", "currentAction": "NONE"}]
    managed += [{"name": "demo-0-b", "id": "124", "currentAction": "CREATING"}]
    groups = SimpleNamespace(
        managed=lambda name: managed if name == names[0] else [], zones=dict.fromkeys(names, "z-a")
    )
    monkeypatch.setattr(gcp, "open_scaler", lambda *_, **__: groups)
    outputs = {
        "group_names": names, "project": "acme", "zone": "z-a", "head_instance_id": "projects/acme/instances/head",
        "log_group": "projects/acme/logs/demo",
    }  # fmt: skip
    nodes = gcp.list_nodes(config, outputs)
    assert [(node.name, node.state) for node in nodes] == [
        ("head", "unknown"), ("demo-0-a", "running"), ("demo-0-b", "creating")
    ]  # fmt: skip
    assert gcp.shell_argv(config, outputs, nodes[1]) == [
        *("gcloud", "compute", "ssh", "demo-0-a", "--tunnel-through-iap", "--project", "acme", "--zone", "z-a")
    ]
    entries = [
        {"timestamp": f"2030-01-01T00:00:0{index}.123456789Z", "insertId": str(index), "jsonPayload": {"message": "m"},
         "resource": {"labels": {"instance_id": identity}}}
        for index, identity in enumerate(("123", "999"))
    ]  # fmt: skip
    pages = [{"entries": entries[:1], "nextPageToken": "t"}, {"entries": entries[1:]}]
    bodies: list[Any] = []

    def request(method: str, url: str, **more: Any) -> Any:
        bodies.append(more["json"])
        return SimpleNamespace(status_code=200, text="", json=lambda: pages.pop(0))

    monkeypatch.setattr(gcp, "_rest", lambda url: Rest(SimpleNamespace(request=request), url, ""))
    found = gcp.read_log(config, outputs, datetime(2030, 1, 1, tzinfo=UTC))
    assert [each.node for each in found] == ["demo-0-a", "999"], "a node that is gone has only its id"
    assert bodies[1]["pageToken"] == "t"
    assert 'logName="projects/acme/logs/demo"' in bodies[0]["filter"]


def test_slices_of_tpus_have_their_own_command(repo: Path, monkeypatch: pytest.MonkeyPatch, gce: Any) -> None:
    config = from_file(repo / "stacks/Pulumi.gcp-v5e-pod.yaml")
    rows = [
        {
            "name": f"projects/p/locations/z/nodes/{name}",
            "id": "7",
            "state": "READY",
            "labels": {"gangway-stack": stack},
        }
        for name, stack in (("mine-0", config.stack), ("other-0", "other"))
    ]
    answer = SimpleNamespace(status_code=200, text="", json=lambda: {"nodes": rows})
    session = SimpleNamespace(request=lambda *_, **__: answer)
    monkeypatch.setattr(gcp, "_rest", lambda url: Rest(session, url, ""))
    outputs = {"queued_resource": "q", "project": "p", "zone": "z", "group_names": []}
    (node,) = gcp.list_nodes(config, outputs)
    assert (node.name, node.state) == ("mine-0", "ready")
    assert "tpu-vm ssh mine-0 --worker 0" in " ".join(gcp.shell_argv(config, outputs, node))


def test_hosts_are_reached_directly_and_openstack_not_at_all(repo: Path) -> None:
    lab = from_file(repo / "stacks/Pulumi.hosts-lab.yaml")
    nodes = hosts.list_nodes(lab, {})
    argv = hosts.shell_argv(lab, {}, nodes[0])
    assert argv[0] == "ssh"
    assert argv[-2:] == ["--", nodes[0].id]
    with pytest.raises(InputError, match="console log show"):
        openstack.shell_argv(lab, {}, Node("n", "id-1", "nodes", "active"))
