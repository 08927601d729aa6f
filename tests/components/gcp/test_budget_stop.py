"""The stop: the workflow's own text, run by a small interpreter of its language, and what is declared around it."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from components.gcp.budget import STOP_PERMISSIONS, Budget, stop_source
from components.gcp.identity import PROJECT_WIDE

ZONE = "projects/lab/zones/us-east5-a"
ZONE_URL = f"https://compute.googleapis.com/compute/v1/{ZONE}"


class Fields(dict[str, Any]):
    """A mapping whose keys are read with a dot, as the language does."""

    def __getattr__(self, name: str) -> Any:
        return _readable(self[name])


def _readable(value: Any) -> Any:
    return Fields(value) if isinstance(value, dict) else value


class Returned(Exception):  # noqa: N818 - it is no error
    """A `return` step."""


class Raised(Exception):  # noqa: N818 - the language's own word
    """A `raise` step, or a call that failed."""


class Interpreter:
    """As much of Cloud Workflows as `stop_groups.yaml` uses; a key it does not know is a mistake.

    Attributes:
        calls: requests that were made: method, URL and query.
        answers: what a GET gives, by URL.
        broken: URLs that fail.
    """

    KEYS = (
        {"assign"},
        {"switch"},
        {"for"},
        {"return"},
        {"raise"},
        {"call", "args"},
        {"call", "args", "result"},
        {"try"},
        {"try", "retry"},
        {"try", "except"},
        {"try", "retry", "except"},
    )

    def __init__(self, source: str, environment: Mapping[str, str]) -> None:
        self.flows: dict[str, Any] = yaml.safe_load(source)
        self.environment = environment
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.broken: set[str] = set()

    def run(self, flow: str, *args: Any) -> Any:
        body = self.flows[flow]
        assert set(body) == {"params", "steps"}
        try:
            self.steps(body["steps"], dict(zip(body["params"], args, strict=True)))
        except Returned as returned:
            return returned.args[0]

    def steps(self, steps: list[Any], names: dict[str, Any]) -> None:
        for step in steps:
            ((_, body),) = step.items()
            self.step(body, names)

    def step(self, body: Mapping[str, Any], names: dict[str, Any]) -> None:
        assert set(body) in self.KEYS, set(body)
        if "assign" in body:
            for assignment in body["assign"]:
                ((name, value),) = assignment.items()
                names[name] = self.value(value, names)
        elif "switch" in body:
            self.switch(body["switch"], names)
        elif "for" in body:
            assert set(body["for"]) == {"value", "in", "steps"}
            for item in self.value(body["for"]["in"], names):
                # What a loop assigns to a variable from outside stays assigned; its own is gone afterwards.
                names[body["for"]["value"]] = _readable(item)
                self.steps(body["for"]["steps"], names)
                del names[body["for"]["value"]]
        elif "try" in body:
            self.attempt(body, names)
        elif "call" in body:
            self.call(body, names)
        elif "return" in body:
            raise Returned(self.value(body["return"], names))
        else:
            raise Raised(self.value(body["raise"], names))

    def switch(self, cases: list[Mapping[str, Any]], names: dict[str, Any]) -> None:
        for case in cases:
            rest = {key: value for key, value in case.items() if key != "condition"}
            if self.value(case["condition"], names):
                return self.steps(rest["steps"], names) if "steps" in rest else self.step(rest, names)
        return None

    def attempt(self, body: Mapping[str, Any], names: dict[str, Any]) -> None:
        assert body.get("retry", "${http.default_retry}") == "${http.default_retry}"
        try:
            self.step(body["try"], names)
        except Raised:
            if "except" not in body:
                raise
            assert set(body["except"]) == {"as", "steps"}
            self.steps(body["except"]["steps"], names)

    def call(self, body: Mapping[str, Any], names: dict[str, Any]) -> None:
        args = {key: self.value(value, names) for key, value in body["args"].items()}
        if not body["call"].startswith("http."):
            self.run(body["call"], *args.values())
            return
        assert args["auth"] == {"type": "OAuth2"}
        url = args["url"]
        self.calls.append((body["call"].partition(".")[2].upper(), url, args.get("query", {})))
        if url in self.broken:
            raise Raised(url)
        if "result" in body:
            names[body["result"]] = Fields(body=self.answers.get(url, {}))

    def value(self, value: Any, names: Mapping[str, Any]) -> Any:
        if isinstance(value, str) and value.startswith("${"):
            functions = {
                "json": SimpleNamespace(decode=lambda text: _readable(json.loads(text)), encode_to_string=json.dumps),
                "base64": SimpleNamespace(decode=base64.b64decode),
                "sys": SimpleNamespace(get_env=self.environment.__getitem__),
                "list": SimpleNamespace(concat=lambda items, item: [*items, item]),
                "map": SimpleNamespace(get=lambda fields, key: fields.get(key)),
                "default": lambda found, otherwise: otherwise if found is None else found,
                "double": float,
                "len": len,
            }
            return eval(value[2:-1], {"__builtins__": {}}, {**functions, **names})
        return value


def message(spent: float, budget: float = 1000.0) -> Fields:
    """What Eventarc hands over for a message of the budget."""
    told = {"budgetDisplayName": "gangway-demo", "costAmount": spent, "budgetAmount": budget, "currencyCode": "USD"}
    data = base64.b64encode(json.dumps(told).encode()).decode()
    return Fields(data={"message": {"data": data, "attributes": {"billingAccountId": "x"}}})


@pytest.fixture
def workflow() -> Interpreter:
    lists = {
        "GROUPS": [f"{ZONE}/instanceGroupManagers/{name}" for name in ("demo-0-spot", "demo-1-flex")],
        "HEADS": [f"{ZONE}/instances/demo-head"],
        "QUEUED_RESOURCES": ["projects/lab/locations/us-east5-a/queuedResources/gan"],
    }
    environment = {key: json.dumps(names) for key, names in lists.items()}
    return Interpreter(stop_source(), {**environment, "STOP_PERCENT": "100"})


EMPTY = [
    ("POST", f"{ZONE_URL}/instances/demo-head/stop", {}),
    ("GET", f"{ZONE_URL}/instanceGroupManagers/demo-0-spot/resizeRequests", {}),
    ("POST", f"{ZONE_URL}/instanceGroupManagers/demo-0-spot/resize", {"size": 0}),
    ("GET", f"{ZONE_URL}/instanceGroupManagers/demo-1-flex/resizeRequests", {}),
    ("POST", f"{ZONE_URL}/instanceGroupManagers/demo-1-flex/resize", {"size": 0}),
    (
        "DELETE",
        "https://tpu.googleapis.com/v2/projects/lab/locations/us-east5-a/queuedResources/gan",
        {"force": True},
    ),
]


@pytest.mark.parametrize(("spent", "stops"), [(0.0, False), (999.99, False), (1000.0, True), (5000.0, True)])
def test_it_stops_at_its_share_and_not_before(workflow: Interpreter, spent: float, stops: bool) -> None:
    assert workflow.run("main", message(spent)) == ("stopped" if stops else "below")
    assert workflow.calls == (EMPTY if stops else [])


@pytest.mark.parametrize(("percent", "spent", "stops"), [("120", 1199, False), ("120", 1200, True), ("80", 800, True)])
def test_the_share_is_the_stack_files(workflow: Interpreter, percent: str, spent: float, stops: bool) -> None:
    workflow.environment = {**workflow.environment, "STOP_PERCENT": percent}
    assert workflow.run("main", message(spent)) == ("stopped" if stops else "below")


def test_nodes_still_waited_for_are_given_up(workflow: Interpreter) -> None:
    url = f"{ZONE_URL}/instanceGroupManagers/demo-1-flex"
    requests = [{"name": "a", "state": "SUCCEEDED"}, {"name": "b", "state": "ACCEPTED"}]
    workflow.answers[f"{url}/resizeRequests"] = {"items": requests}
    workflow.run("main", message(2000))
    of_the_group = [call for call in workflow.calls if call[1].startswith(url)]
    assert of_the_group == [
        ("GET", f"{url}/resizeRequests", {}),
        ("POST", f"{url}/resizeRequests/b/cancel", {}),
        ("POST", f"{url}/resize", {"size": 0}),
    ]


@pytest.mark.parametrize("index", [0, 2, 3, 5])
def test_one_part_that_fails_leaves_no_other_undone(workflow: Interpreter, index: int) -> None:
    workflow.broken = {EMPTY[index][1]}
    with pytest.raises(Raised, match="not stopped"):
        workflow.run("main", message(2000))
    left_out = {4} if index == 3 else set()
    assert workflow.calls == [call for place, call in enumerate(EMPTY) if place not in left_out]


def test_it_fits_into_a_workflow() -> None:
    assert len(stop_source().encode()) < 128_000
    flows = yaml.safe_load(stop_source())
    names = [name for flow in flows.values() for name in _step_names(flow["steps"])]
    assert len(names) > 10
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)
    expressions = re.findall(r"\$\{.*\}", stop_source())
    assert all(len(expression) <= 400 for expression in expressions), "the language takes no longer one"


def _step_names(steps: list[dict[str, Any]]) -> Iterator[str]:
    for step in steps:
        ((name, body),) = step.items()
        yield name
        for inner in (body.get("for", {}), body.get("except", {})):
            yield from _step_names(inner.get("steps", []))


def test_every_request_is_one_of_the_apis(workflow: Interpreter, api_document: Callable[[str], dict[str, Any]]) -> None:
    url = f"{ZONE_URL}/instanceGroupManagers/demo-1-flex"
    workflow.answers[f"{url}/resizeRequests"] = {"items": [{"name": "b", "state": "ACCEPTED"}]}
    workflow.run("main", message(2000))
    known = {}
    for api, host in (
        ("compute.v1", "https://compute.googleapis.com/compute/v1/"),
        ("tpu.v2", "https://tpu.googleapis.com/"),
    ):
        known[host] = list(_methods(api_document(api)))
    for verb, called, query in workflow.calls:
        (host,) = [host for host in known if called.startswith(host)]
        fits = [m for m in known[host] if m["httpMethod"] == verb and _matches(m["path"], called.removeprefix(host))]
        assert fits, called
        assert any(query.keys() <= method["parameters"].keys() for method in fits), called
    states = api_document("compute.v1")["schemas"]["InstanceGroupManagerResizeRequest"]["properties"]["state"]
    assert "ACCEPTED" in states["enum"]


def _methods(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _methods(inner)


def _matches(template: str, path: str) -> bool:
    pattern = re.sub(r"\\\{(\\\+)?[a-zA-Z]+\\\}", lambda m: ".+" if m[1] else "[^/]+", re.escape(template))
    return re.fullmatch(pattern, path) is not None


@pytest.fixture
def stop_args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "project_number": "123456789012",
        "billing_account": "012345-6789AB-CDEF01",
        "region": "us-east5",
        "monthly_usd": 1500,
        "emails": ["a@example.com"],
        "alert_percent": [50],
        "stop_at_percent": 120,
        "group_ids": [f"{ZONE}/instanceGroupManagers/demo-0-spot"],
        "head_ids": [f"{ZONE}/instances/demo-head"],
        "tag_key": "gangway-stack",
        "tag_value": "demo",
        "tags": labels,
    }


@pytest.fixture
def stopping(make: Callable[..., Any], stop_args: Any) -> Any:
    return make(Budget, stop_args)


def test_the_topic_starts_the_workflow(stopping: Any, api_mistakes: Callable[..., list[str]]) -> None:
    trigger, workflow = stopping.one("Trigger").inputs, stopping.one("Workflow")
    assert trigger["matchingCriterias"] == [
        {"attribute": "type", "value": "google.cloud.pubsub.topic.v1.messagePublished"}
    ]
    assert trigger["transport"] == {"pubsub": {"topic": stopping.one("Topic").id}}
    assert trigger["destination"] == {"workflow": workflow.id}
    assert trigger["serviceAccount"] == workflow.inputs["serviceAccount"] == "${Account.demo-stop.email}"
    body = {key: trigger[key] for key in ("transport", "destination", "serviceAccount", "labels")}
    body["eventFilters"] = trigger["matchingCriterias"]
    assert api_mistakes("eventarc.v1", "Trigger", body) == []


def test_the_workflow_is_the_file_and_its_environment(
    stopping: Any, labels: dict[str, str], api_mistakes: Callable[..., list[str]]
) -> None:
    workflow = stopping.one("Workflow").inputs
    assert workflow["userEnvVars"] == {
        "STOP_PERCENT": "120",
        "GROUPS": '["projects/lab/zones/us-east5-a/instanceGroupManagers/demo-0-spot"]',
        "HEADS": '["projects/lab/zones/us-east5-a/instances/demo-head"]',
        "QUEUED_RESOURCES": "[]",
    }
    assert set(re.findall(r'sys\.get_env\("(\w+)"\)', stop_source())) == set(workflow["userEnvVars"])
    assert (workflow["sourceContents"], workflow["labels"]) == (stop_source(), labels)
    assert workflow["deletionProtection"] is False
    named = ("sourceContents", "userEnvVars", "serviceAccount", "callLogLevel", "labels")
    assert api_mistakes("workflows.v1", "Workflow", {key: workflow[key] for key in named}) == []


def test_its_account_may_stop_and_no_more(stopping: Any) -> None:
    assert stopping.one("Account").inputs["accountId"] == "demo-stop"
    assert set(stopping.one("IAMCustomRole").inputs["permissions"]) == set(STOP_PERMISSIONS) <= PROJECT_WIDE.keys()
    roles = {member.inputs["role"] for member in stopping.of("IAMMember")}
    assert roles == {"roles/workflows.invoker", "roles/logging.logWriter", "${IAMCustomRole.demo-stop.name}"}


def test_the_trigger_waits_for_the_agent_that_acts_for_it(
    make: Callable[..., Any], stop_args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pulumi_gcp import eventarc

    options: list[Any] = []
    real = eventarc.Trigger

    def noting(name: str, **args: Any) -> Any:
        options.append(args["opts"])
        return real(name, **args)

    monkeypatch.setattr(eventarc, "Trigger", noting)
    agent = make(Budget, stop_args).one("ServiceIdentity")
    assert agent.inputs == {"project": "lab", "service": "eventarc.googleapis.com"}
    (waits,) = options
    assert [type(resource).__name__ for resource in waits.depends_on] == ["ServiceIdentity"]


def test_with_tpus_it_may_delete_them(make: Callable[..., Any], stop_args: Any) -> None:
    args = {**stop_args, "queued_resource_names": ["projects/lab/locations/us-east5-a/queuedResources/gan"]}
    made = make(Budget, args)
    assert "roles/tpu.admin" in {member.inputs["role"] for member in made.of("IAMMember")}
    assert json.loads(made.one("Workflow").inputs["userEnvVars"]["QUEUED_RESOURCES"]) == args["queued_resource_names"]
