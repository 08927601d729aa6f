"""QueuedTpu: TPU slices from the queue, as two dynamic resources, so only for Python programs: the request
(QueuedTpuProvider), in the state once accepted, and the wait for its nodes (ActiveTpuProvider), so that a failed wait
does not lose the request. Only a refresh sees preemption: `pulumi up --refresh`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)
from pulumi.runtime.rpc import UNKNOWN
from pulumi_gcp import tpu

from gangway.components.core.findings import InputError
from gangway.components.core.outputs import after, register_outputs
from gangway.components.gcp.tpu.api import GOOGLE_API_URL, SCOPE, TpuApi, TpuError, status_error
from gangway.components.gcp.tpu.request import (
    FINGERPRINT_KEY,
    AcceleratorConfigArgs,
    QueuedTpuArgs,
    node_ids,
    parent_name,
    queued_resource_body,
    validate,
)

TIMEOUTS_SEC = {"accept_sec": 300.0, "active_sec": 86400.0, "delete_sec": 1800.0, "poll_sec": 10.0}
NOT_YET_ACCEPTED = {"STATE_UNSPECIFIED", "CREATING"}
# A queued resource does not recover from these states.
DEAD = {"SUSPENDING", "SUSPENDED", "FAILED", "DELETING"}
DEAD_NODE = {"PREEMPTED", "TERMINATED"}
ALREADY_EXISTS = 409
STACK_LABEL = "gangway-stack"
OWNER_LABELS = (STACK_LABEL, "team", "cost_center")  # labels that name the owner of a queued resource


def _state(found: Mapping[str, Any]) -> str:
    return str(found.get("state", {}).get("state", "STATE_UNSPECIFIED"))


def _why_dead(found: Mapping[str, Any]) -> str:
    state, state_data = _state(found), found.get("state", {})
    if state not in DEAD:
        return ""
    failure = state_data.get("failedData", {}).get("error", {}).get("message")
    initiator = {"SERVICE": "by the service", "USER": "by a user"}.get(state_data.get("stateInitiator", ""))
    return f"it is {state}" + "".join(f" ({detail})" for detail in (failure, initiator) if detail)


def _node(queued: Mapping[str, Any]) -> Mapping[str, Any]:
    (spec,) = queued.get("tpu", {}).get("nodeSpec") or [{}]
    node: Mapping[str, Any] = spec.get("node", {})
    return node


def _fingerprint(queued: Mapping[str, Any]) -> str | None:
    mark = _node(queued).get("metadata", {}).get(FINGERPRINT_KEY)
    return None if mark is None else str(mark)


class QueueWatch:
    """The queue of one API."""

    def __init__(self, api: TpuApi, timeouts: Mapping[str, float]) -> None:
        self._api, self._timeouts = api, {**TIMEOUTS_SEC, **timeouts}

    def request(self, args: Mapping[str, Any]) -> str:
        """Request a queued resource and wait until it is accepted -> its full name. Adopts the request of an
        interrupted call; deletes and repeats a dead one of ours. TpuError: refused, failed at once (and removed), or
        another owner has the name. InputError: contradictory arguments.
        """
        body, parent = queued_resource_body(args), parent_name(args)
        name = f"{parent}/queuedResources/{args['queued_resource_id']}"
        operation: dict[str, Any] = {}
        left_over = self._api.get_queued_resource(name)
        if left_over:
            self._must_be_ours(name, left_over, body)
            if _why_dead(left_over):
                self._say(name, f"{_why_dead(left_over)}: deleted, and asked for again")
                self.remove(name)
                left_over = None
            else:
                self._say(name, "taken over from an interrupted run")
        if not left_over:
            operation = self._api.create_queued_resource(parent, args["queued_resource_id"], body)
        self._wait_accepted(name, operation)
        return name

    def _must_be_ours(self, name: str, found: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        """Another stack may have an identical request: it is ours only if labels and fingerprint match."""
        labels, own = _node(found).get("labels", {}), _node(body).get("labels", {})
        other = {key: value for key, value in labels.items() if key in OWNER_LABELS and own.get(key) != value}
        if other or _fingerprint(found) != _fingerprint(body) or labels.get(STACK_LABEL) != own.get(STACK_LABEL):
            owner = ", ".join(f"{key} {labels[key]}" for key in OWNER_LABELS if key in labels)
            problem = "is not this program's" if other else "asks for something else"
            mismatch = f"{problem}; its labels: {owner or 'none that name an owner'}"
            raise TpuError(
                f"{name} exists ({_state(found)}) and {mismatch}\n  fix: "
                "choose another queued_resource_id, which a stack has from gangway:identity; or ask its owner",
                ALREADY_EXISTS,
            )

    def _wait_accepted(self, name: str, operation: Mapping[str, Any]) -> None:
        def accepted() -> bool:
            found = self._api.get_queued_resource(name)
            failed = self._operation_error(operation)
            if failed or (found and _state(found) == "FAILED"):
                reason = failed or TpuError(f"{name}: {_why_dead(found or {})}")
                self.remove(name)
                raise reason
            return found is not None and _state(found) not in NOT_YET_ACCEPTED

        self._until(accepted, name, "accept_sec", "the queue has not accepted it: run `up` again, which takes it over")

    def _operation_error(self, operation: Mapping[str, Any]) -> TpuError | None:
        if not operation:
            return None
        current = self._api.get_operation(operation["name"])
        return status_error(operation["name"], current["error"]) if "error" in current else None

    def look(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of QueuedTpuRequest; empty if there is none."""
        found = self._api.get_queued_resource(name)
        if not found:
            return {}
        return {
            "name": name,
            "state": _state(found),
            "create_time": found.get("createTime", ""),
            "node_names": _node_names(args),
            "replace_reason": _why_dead(found) or self._why_nodes_dead(name, _state(found), args),
        }

    def _why_nodes_dead(self, name: str, state: str, args: Mapping[str, Any]) -> str:
        """A preempted node may be visible before its queued resource reports it; a missing one is never reported."""
        states = {_last(node["name"]): node.get("state") for node in self._nodes(name)}
        for node in _node_names(args):
            found = states.get(_last(node))
            if found in DEAD_NODE:
                return f"{node} is {found}"
            if not found and state == "ACTIVE":
                return f"{node} is gone"
        return ""

    def _nodes(self, name: str) -> list[dict[str, Any]]:
        """The nodes of a queued resource, by slice. Not by name: others may have created such nodes."""
        parent = name.partition("/queuedResources/")[0]
        owned = [node for node in self._api.list_nodes(parent) if _last(node.get("queuedResource", "")) == _last(name)]
        # Slice 10 comes after slice 9.
        return sorted(owned, key=lambda node: (len(node["name"]), node["name"]))

    def wait_active(self, name: str) -> dict[str, Any]:
        """Wait for the nodes -> `state`, hosts' internal `addresses`. TpuError: dead, gone or too slow; it is kept."""
        last_state, started = "", time.monotonic()

        def active() -> bool:
            nonlocal last_state
            found = self._api.get_queued_resource(name)
            if not found:
                raise TpuError(f"{name} is gone: run `pulumi up --refresh` to ask for it again")
            if _why_dead(found):
                raise TpuError(f"{name}: {_why_dead(found)}: run `pulumi up --refresh` to replace it")
            if _state(found) != last_state:
                last_state = _state(found)
                self._say(name, f"{last_state} after {time.monotonic() - started:.0f} s")
            return last_state == "ACTIVE"

        keeps = "it keeps its place in the queue: run `up` to wait on, or `destroy` to give it up"
        self._until(active, name, "active_sec", lambda: f"it is {last_state}; {keeps}")
        return {"state": "ACTIVE", "addresses": self._addresses(name)}

    def _addresses(self, name: str) -> list[str]:
        return [endpoint["ipAddress"] for node in self._nodes(name) for endpoint in node.get("networkEndpoints", [])]

    def label_nodes(self, nodes: list[str], labels: Mapping[str, str]) -> None:
        """Set the labels of existing nodes, and wait."""
        for node in nodes:
            operation = self._api.patch_node_labels(node, labels)

            def done(operation: Mapping[str, Any] = operation) -> bool:
                current = self._api.get_operation(operation["name"])
                if "error" in current:
                    raise status_error(operation["name"], current["error"])
                return bool(current.get("done"))

            self._until(done, node, "accept_sec", "its labels are not set: run `up` again")

    def remove(self, name: str) -> None:
        """Delete a queued resource with its nodes, and wait. A missing one is no error."""
        refusal = "no answer yet"

        def gone() -> bool:
            nonlocal refusal
            found = self._api.get_queued_resource(name)
            if not found:
                return self._no_nodes_left(name)
            if _state(found) != "DELETING":
                refusal = self._try_delete(name) or _state(found)
            return False

        self._until(gone, name, "delete_sec", lambda: f"it is not deleted ({refusal}): run the same command again")

    def _try_delete(self, name: str) -> str:
        """Request the deletion -> why it was refused for now, or empty."""
        try:
            self._api.delete_queued_resource(name)
        except TpuError as error:
            # Already deleted; or in a transient state, such as PROVISIONING.
            if error.status not in (404, 409) and "FAILED_PRECONDITION" not in str(error):
                raise
            return str(error)
        return ""

    def _no_nodes_left(self, name: str) -> bool:
        """Whether all its nodes are gone. One that outlived its queued resource would be billed: it is deleted."""
        nodes = self._nodes(name)
        for node in nodes:
            if node.get("state") != "DELETING":
                self._api.delete_node(node["name"])
        return not nodes

    def _until(self, reached: Callable[[], bool], name: str, timeout: str, otherwise: str | Callable[[], str]) -> None:
        """Poll until `reached`. TpuError with `otherwise` at the timeout."""
        limit_sec = self._timeouts[timeout]
        deadline = time.monotonic() + limit_sec
        while not reached():
            if time.monotonic() >= deadline:
                problem = otherwise if isinstance(otherwise, str) else otherwise()
                raise TpuError(f"{name}: after {limit_sec:g} s (timeouts.{timeout}) {problem}")
            time.sleep(self._timeouts["poll_sec"])

    def _say(self, name: str, message: str) -> None:
        print(f"{name}: {message}", flush=True)


def _last(name: str) -> str:
    """A resource's last name part: the API may write the project as a number."""
    return name.rpartition("/")[2]


def _node_names(args: Mapping[str, Any]) -> list[str]:
    return [f"{parent_name(args)}/nodes/{node}" for node in node_ids(args)]


# Values from the API that are no inputs.
OUTPUTS = ("create_time", "name", "node_names", "replace_reason", "state")
# Inputs that are not part of the request.
OUR_OWN = ("api_url", "timeouts")
# Pulumi stores the serialised provider among the properties.
PROVIDER_KEY = "__provider"


def _watch(props: Mapping[str, Any]) -> QueueWatch:
    """The queue for these properties. Created per call: a stored one would be pickled into state."""
    return QueueWatch(TpuApi(props.get("api_url", GOOGLE_API_URL)), props.get("timeouts", {}))


def _inputs(props: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in props.items() if key not in (*OUTPUTS, PROVIDER_KEY)}


class QueuedTpuProvider(ResourceProvider):
    """Creates, reads, relabels and deletes a queued resource. Holds nothing: state gets a reference to the class."""

    # References contain no secret, and a secret would hide every difference in a preview.
    serialize_as_secret_always = False

    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        """Report mistakes in the inputs before any call of the API."""
        # `create` checks values that are not known yet.
        if UNKNOWN in news.values():
            return CheckResult(news, [])
        try:
            validate(news)
        except InputError as error:
            return CheckResult(news, [CheckFailure(error.place, str(error))])
        return CheckResult(news, [])

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Request it and wait until the queue accepts it. Adopts what an interrupted call left."""
        watch = _watch(props)
        name = watch.request(props)
        return CreateResult(name, {**_inputs(props), **watch.look(name, props)})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Its current status. An empty id makes the engine forget a deleted one."""
        outputs = _watch(props).look(id_, props)
        if not outputs:
            return ReadResult("", {})
        return ReadResult(id_, {**_inputs(props), **outputs})

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """A queued resource cannot be edited, so every change replaces it, except labels, which wait for its nodes.
        Always deletes first: both have the same name, and a preempted one uses quota until deleted.
        """
        before, after = _inputs(olds), _inputs(news)
        changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
        if "labels" in changed and olds.get("state") != "ACTIVE":
            changed.remove("labels")
        replaces = sorted(key for key in changed if key not in (*OUR_OWN, "labels"))
        if olds.get("replace_reason"):
            print(f"{olds['name']}: {olds['replace_reason']}: it is replaced", flush=True)
            replaces.append("replace_reason")
        return DiffResult(bool(changed or replaces), replaces, [], delete_before_replace=True)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Set the labels of the nodes. A request without nodes keeps its labels until it has some."""
        labels: dict[str, str] = news["labels"] if olds.get("state") == "ACTIVE" else olds.get("labels") or {}
        if olds.get("labels") != labels:
            _watch(news).label_nodes(olds["node_names"], labels)
        return UpdateResult({**_inputs(news), "labels": labels, **{key: olds.get(key) for key in OUTPUTS}})

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Delete it with its nodes and wait."""
        _watch(props).remove(_id)


class ActiveTpuProvider(ResourceProvider):
    """Waits until a queued resource has its nodes. Holds nothing, and deletes nothing."""

    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Wait. TpuError: it cannot come up or takes too long; the request is kept."""
        found = _watch(props).wait_active(props["name"])
        return CreateResult(f"{props['name']}@{props['create_time']}", {**props, **found})

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """A new request is waited for again."""
        replaces = [key for key in ("name", "create_time") if olds.get(key) != news.get(key)]
        changed = bool(replaces) or any(olds.get(key) != news.get(key) for key in OUR_OWN)
        return DiffResult(changed, replaces, [], delete_before_replace=True)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Store the settings of the next wait."""
        return UpdateResult({**news, "state": olds.get("state"), "addresses": olds.get("addresses")})


class QueuedTpuRequest(Resource, module="gangway", name="QueuedTpuRequest"):
    """The request in the queue as a resource."""

    name: pulumi.Output[str]
    state: pulumi.Output[str]
    create_time: pulumi.Output[str]
    node_names: pulumi.Output[list[str]]
    replace_reason: pulumi.Output[str]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        # An output is resolved only for a declared property.
        super().__init__(QueuedTpuProvider(), name, {**dict.fromkeys(OUTPUTS), **props}, opts)


class ActiveTpu(Resource, module="gangway", name="ActiveTpu"):
    """The wait for a request's nodes as a resource."""

    state: pulumi.Output[str]
    addresses: pulumi.Output[list[str]]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ActiveTpuProvider(), name, {"state": None, "addresses": None, **props}, opts)


class QueuedTpu(pulumi.ComponentResource):
    """TPU slices requested from the queue: `num_slices` nodes of one accelerator type.

    Attributes:
        name: `projects/P/locations/ZONE/queuedResources/ID`.
        state: of the last read; ACTIVE with `wait_active`.
        node_names: full names of present and future nodes, by slice.
        addresses: internal addresses of all hosts, by slice; empty without `wait_active`.
        replace_reason: why the next `up` replaces it; empty if it does not.
    """

    name: pulumi.Output[str]
    state: pulumi.Output[str]
    node_names: pulumi.Output[list[str]]
    addresses: pulumi.Output[list[str]]
    replace_reason: pulumi.Output[str]

    def __init__(self, name: str, args: QueuedTpuArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:QueuedTpu", name, None, opts)
        asked: dict[str, Any] = {"queued_resource_id": name, **args}
        wait = asked.pop("wait_active", False)
        validate(asked)
        options = pulumi.ResourceOptions(parent=self)
        request = QueuedTpuRequest(f"{name}-request", asked, options)
        # Known in advance, so that a preview of a replacement shows no change in references to it.
        self.name = after(f"{parent_name(asked)}/queuedResources/{asked['queued_resource_id']}", request)
        self.node_names, self.replace_reason = request.node_names, request.replace_reason
        self.state, self.addresses = request.state, pulumi.Output.from_input([])
        if wait:
            followed = {key: asked[key] for key in OUR_OWN if key in asked}
            followed |= {"name": request.name, "create_time": request.create_time}
            active = ActiveTpu(f"{name}-active", followed, options)
            self.state, self.addresses = active.state, active.addresses
        register_outputs(self)


# TpuVm: one TPU slice without the queue; `up` fails at once without capacity. Of Google's provider: any language.


class TpuVmArgs(TypedDict):
    """Inputs of TpuVm: a part of QueuedTpu's. Either `accelerator_type` (v5litepod-4) or `accelerator_config`. `tier`
    is spot, guaranteed (from a reservation of the project) or on-demand. `pulumi up --refresh` recreates a preempted
    spot slice.
    """

    project: str
    zone: str
    accelerator_type: NotRequired[str]
    accelerator_config: NotRequired[AcceleratorConfigArgs]
    runtime_version: str
    tier: str
    service_account: pulumi.Input[str]
    network: NotRequired[pulumi.Input[str]]
    subnetwork: NotRequired[pulumi.Input[str]]
    network_tags: NotRequired[list[str]]
    startup_script: NotRequired[pulumi.Input[str]]
    secure_boot: NotRequired[bool]
    labels: dict[str, str]


class TpuVm(pulumi.ComponentResource):
    """One slice. `name`: `projects/P/locations/ZONE/nodes/ID`; `addresses`: its hosts' internal ones, in order."""

    name: pulumi.Output[str]
    addresses: pulumi.Output[list[str]]

    def __init__(self, name: str, args: TpuVmArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:TpuVm", name, None, opts)
        validate(args)
        script = args.get("startup_script")
        vm = tpu.V2Vm(
            f"{name}-tpu",
            project=args["project"],
            zone=args["zone"],
            accelerator_type=args.get("accelerator_type"),
            accelerator_config=_shape(args),
            runtime_version=args["runtime_version"],
            scheduling_config=tpu.V2VmSchedulingConfigArgs(
                spot=args["tier"] == "spot", reserved=args["tier"] == "guaranteed"
            ),
            network_config=tpu.V2VmNetworkConfigArgs(
                network=args.get("network"), subnetwork=args.get("subnetwork"), enable_external_ips=False
            ),
            service_account=tpu.V2VmServiceAccountArgs(email=args["service_account"], scopes=[SCOPE]),
            shielded_instance_config=tpu.V2VmShieldedInstanceConfigArgs(
                enable_secure_boot=args.get("secure_boot", False)
            ),
            tags=args.get("network_tags"),
            metadata=None if script is None else {"startup-script": script},
            labels=args["labels"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = vm.id
        self.addresses = vm.network_endpoints.apply(_addresses)
        register_outputs(self)


def _shape(args: TpuVmArgs) -> tpu.V2VmAcceleratorConfigArgs | None:
    config = args.get("accelerator_config")
    return None if config is None else tpu.V2VmAcceleratorConfigArgs(type=config["type"], topology=config["topology"])


def _addresses(endpoints: Sequence[tpu.outputs.V2VmNetworkEndpoint] | None) -> list[str]:
    return [endpoint.ip_address for endpoint in endpoints or [] if endpoint.ip_address]
