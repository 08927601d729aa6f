"""Arguments of QueuedTpu, their rules, and the body of the API's request. Pure. Accelerator types are passed on
unchanged; chips and hosts are not known here. Every field of the body is in the TPU v2 API's discovery document.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import pulumi

from gangway.components.core.findings import InputError

# Key of the nodes' metadata that identifies an interrupted request of ours: the API adds defaults and drops false
# values, so bodies cannot be compared.
FINGERPRINT_KEY = "gangway-request"
TIERS = {
    "spot": "cheap, may be taken back at any time",
    "guaranteed": "not taken back; with min_duration_sec or a reservation",
    "on-demand": "list price, first come first served",
}
DISK_MODES = {"READ_ONLY": "by any number of hosts", "READ_WRITE": "by one host"}
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# As of Compute Engine, whose instances get the nodes' names.
_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_RESERVATION = re.compile(r"projects/[^/]+/locations/[^/]+/reservations/[^/]+")
MAX_LABELS = 64


class AcceleratorConfigArgs(TypedDict):
    """A slice by its shape: `type` such as V5P, `topology` such as 4x4x8, in chips."""

    type: str
    topology: str


class DataDiskArgs(TypedDict):
    """An existing disk for every host: `projects/P/zones/Z/disks/D`. `mode` is READ_ONLY (default) or READ_WRITE."""

    source_disk: pulumi.Input[str]
    mode: NotRequired[str]


class TimeoutsArgs(TypedDict, total=False):
    """Timeouts and polling. `accept_sec` until the queue takes the request (default 300), `active_sec` until its nodes
    are up with `wait_active` (default 86400), `delete_sec` until all is deleted (default 1800), `poll_sec` (default
    10).
    """

    accept_sec: float
    active_sec: float
    delete_sec: float
    poll_sec: float


class QueuedTpuArgs(TypedDict):
    """Inputs of QueuedTpu. Either `accelerator_type` (v5p-256) or `accelerator_config`. `tier` is spot, guaranteed or
    on-demand. `num_slices` above one makes a multislice request. `valid_until` (RFC 3339, UTC) or `valid_for_sec` end
    the wait in the queue, and the request fails. Nodes have no external addresses: `network` or `subnetwork` needs
    Private Google Access. A service account is required; the project's default one may do too much. Only `labels`
    change in place, and only while nodes exist: queued requests cannot be edited.
    """

    project: str
    zone: str
    queued_resource_id: NotRequired[str]
    accelerator_type: NotRequired[str]
    accelerator_config: NotRequired[AcceleratorConfigArgs]
    runtime_version: str
    tier: str
    num_slices: NotRequired[int]
    min_duration_sec: NotRequired[int]
    reservation_name: NotRequired[str]
    valid_until: NotRequired[str]
    valid_for_sec: NotRequired[int]
    service_account: pulumi.Input[str]
    network: NotRequired[pulumi.Input[str]]
    subnetwork: NotRequired[pulumi.Input[str]]
    network_tags: NotRequired[list[str]]
    startup_script: NotRequired[pulumi.Input[str]]
    metadata: NotRequired[dict[str, pulumi.Input[str]]]
    data_disks: NotRequired[list[DataDiskArgs]]
    kms_key_name: NotRequired[pulumi.Input[str]]
    secure_boot: NotRequired[bool]
    labels: dict[str, str]
    wait_active: NotRequired[bool]
    timeouts: NotRequired[TimeoutsArgs]
    api_url: NotRequired[str]


def validate(args: Mapping[str, Any]) -> None:
    """Check the arguments before any call of the API. InputError for the first mistake."""
    _check_choice(args["tier"], TIERS, "tier")
    _exclusive(args, "accelerator_type", "accelerator_config", required=True)
    _exclusive(args, "valid_until", "valid_for_sec")
    _check_tier(args)
    request_id = args.get("queued_resource_id", "")
    if request_id and not _ID.fullmatch(request_id):
        raise InputError(
            "queued_resource_id",
            "no name for a queued resource and its nodes",
            value=request_id,
            allowed="a-z, 0-9 and -, a letter first, no - last, 63 characters at most",
        )
    if args.get("num_slices", 1) < 1:
        raise InputError("num_slices", "no number of slices", value=args["num_slices"], allowed="1 or more")
    for key in ("min_duration_sec", "valid_for_sec"):
        if args.get(key, 1) <= 0:
            raise InputError(key, "no length of time", value=args[key], allowed="seconds, above 0")
    _check_form(args, "valid_until", _TIME, "a time in UTC such as 2026-03-01T12:00:00Z")
    _check_form(args, "reservation_name", _RESERVATION, "projects/P/locations/ZONE/reservations/NAME")
    for index, disk in enumerate(args.get("data_disks", [])):
        _check_choice(disk.get("mode", "READ_ONLY"), DISK_MODES, f"data_disks[{index}].mode")
    if FINGERPRINT_KEY in args.get("metadata", {}):
        raise InputError(f"metadata.{FINGERPRINT_KEY}", "this key is set by the component", fix="choose another key")
    if "startup_script" in args and "startup-script" in args.get("metadata", {}):
        raise InputError("metadata.startup-script", "startup_script says it already", fix="keep one of the two")
    _check_labels(args["labels"])


def _check_choice(word: str, allowed: Mapping[str, str], place: str) -> None:
    if word not in allowed:
        raise InputError.not_among(place, "no such choice", word, allowed)


def _exclusive(args: Mapping[str, Any], one: str, other: str, *, required: bool = False) -> None:
    if one in args and other in args:
        raise InputError(other, f"{one} says it already", value=args[other], fix=f"keep {one} or {other}")
    if required and one not in args and other not in args:
        raise InputError(one, "not given", fix=f"add {one} or {other}")


def _check_tier(args: Mapping[str, Any]) -> None:
    if args["tier"] == "spot" and "reservation_name" in args:
        raise InputError("reservation_name", "spot does not use reservations", fix="set tier: guaranteed")
    if args["tier"] != "guaranteed" and "min_duration_sec" in args:
        raise InputError(
            "min_duration_sec",
            f"of no effect with tier {args['tier']}",
            value=args["min_duration_sec"],
            fix="set tier: guaranteed, or remove min_duration_sec",
        )


def _check_form(args: Mapping[str, Any], key: str, form: re.Pattern[str], allowed: str) -> None:
    if key in args and not form.fullmatch(args[key]):
        raise InputError(key, "not of the form the API takes", value=args[key], allowed=allowed)


def _check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            allowed = "a-z, 0-9, _ and -, 63 characters at most; keys start with a letter"
            raise InputError(f"labels.{key}", "no label of GCP", value=value, allowed=allowed)
    if len(labels) > MAX_LABELS:
        raise InputError("labels", f"{len(labels)} labels", allowed=f"at most {MAX_LABELS}", fix="remove some")


def parent_name(args: Mapping[str, Any]) -> str:
    """`projects/P/locations/ZONE`."""
    return f"projects/{args['project']}/locations/{args['zone']}"


def node_ids(args: Mapping[str, Any]) -> list[str]:
    """The nodes' names, one per slice: the request's own, with -0, -1, ... for multislice."""
    base, slices = args["queued_resource_id"], int(args.get("num_slices", 1))
    return [base] if slices == 1 else [f"{base}-{index}" for index in range(slices)]


def queued_resource_body(args: Mapping[str, Any]) -> dict[str, Any]:
    """The API's QueuedResource for plain arguments with `queued_resource_id`. InputError: contradictory or refused."""
    validate(args)
    slices, base = int(args.get("num_slices", 1)), args["queued_resource_id"]
    node = _node(args)
    spec: dict[str, Any] = {"parent": parent_name(args), "node": node}
    if slices == 1:
        spec["nodeId"] = base
    else:
        spec["multisliceParams"] = {"nodeCount": slices, "nodeIdPrefix": base}
    body = {"tpu": {"nodeSpec": [spec]}, **_tier(args), **_queueing_policy(args)}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]
    node["metadata"] = {**node.get("metadata", {}), FINGERPRINT_KEY: digest}
    return body


def _tier(args: Mapping[str, Any]) -> dict[str, Any]:
    """The oneof `tier` and the reservation; on-demand sets neither. As `gcloud compute tpus queued-resources create`
    (surface version 2) sends them: with `--reserved` a reservation's name and no tier, with `--guaranteed` the tier.
    """
    tier: dict[str, Any] = {}
    if args["tier"] == "spot":
        tier["spot"] = {}
    least = args.get("min_duration_sec")
    if args["tier"] == "guaranteed" and (least or "reservation_name" not in args):
        tier["guaranteed"] = {"minDuration": f"{int(least)}s"} if least else {}
    if "reservation_name" in args:
        tier["reservationName"] = args["reservation_name"]
    return tier


def _queueing_policy(args: Mapping[str, Any]) -> dict[str, Any]:
    if "valid_until" in args:
        return {"queueingPolicy": {"validUntilTime": args["valid_until"]}}
    if "valid_for_sec" in args:
        return {"queueingPolicy": {"validUntilDuration": f"{int(args['valid_for_sec'])}s"}}
    return {}


def _node(args: Mapping[str, Any]) -> dict[str, Any]:
    network = {key: args[key] for key in ("network", "subnetwork") if key in args}
    metadata = dict(args.get("metadata", {}))
    if "startup_script" in args:
        metadata["startup-script"] = args["startup_script"]
    disks = [
        {"sourceDisk": disk["source_disk"], "mode": disk.get("mode", "READ_ONLY")}
        for disk in args.get("data_disks", [])
    ]
    optional = {
        "acceleratorType": args.get("accelerator_type"),
        "acceleratorConfig": args.get("accelerator_config"),
        "metadata": metadata,
        "dataDisks": disks,
        "tags": args.get("network_tags"),
        "bootDiskConfig": {"customerEncryptionKey": {"kmsKeyName": args["kms_key_name"]}}
        if "kms_key_name" in args
        else None,
        "shieldedInstanceConfig": {"enableSecureBoot": True} if args.get("secure_boot") else None,
    }
    return {
        "runtimeVersion": args["runtime_version"],
        "networkConfig": {**network, "enableExternalIps": False},
        "serviceAccount": {"email": args["service_account"], "scope": [SCOPE]},
        "labels": dict(args["labels"]),
        **{key: value for key, value in optional.items() if value},
    }
