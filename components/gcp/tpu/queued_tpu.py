"""QueuedTpu: TPU slices from the queue, which the GCP provider cannot request with spot, reservation, labels or an end.
Two dynamic resources, so only for Python programs: the request (QueuedTpuProvider), in the state once accepted, and the
wait for its nodes (ActiveTpuProvider, `wait_active`), so that a failed or interrupted wait does not lose the request.
Only a refresh sees preemption: `pulumi up --refresh`. Credentials are loaded during a call and are in no state.
"""

from collections.abc import Mapping
from typing import Any

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

from gangway.components.core.dependencies import after
from gangway.components.core.findings import InputError
from gangway.components.gcp.tpu.api import GOOGLE_API_URL, TpuApi
from gangway.components.gcp.tpu.queue_watch import QueueWatch
from gangway.components.gcp.tpu.request import QueuedTpuArgs, parent_name, validate

__all__ = ["ActiveTpuProvider", "QueuedTpu", "QueuedTpuProvider", "QueuedTpuRequest"]

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
        self.register_outputs(
            {
                "name": self.name,
                "state": self.state,
                "node_names": self.node_names,
                "addresses": self.addresses,
                "replace_reason": self.replace_reason,
            }
        )
