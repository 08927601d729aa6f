"""MachineImage: an image in which a node's software is installed already, built during `up`.

Google has no service that provisions a disk, and a builder among the stack's resources would stay and cost: one dynamic
resource (only for Python programs) makes the builder, waits for it, makes the image of its disk, and deletes it.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult

from gangway.components.core.findings import InputError
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import shortened
from gangway.components.gcp.launch import SCOPES
from gangway.components.gcp.tpu.api import TpuApi, TpuError
from gangway.components.gcp.tpu.queued_tpu import STACK_LABEL

BUILDER_TYPE = "e2-standard-8"
"""The builder needs no GPU: drivers are the base image's, and a Lustre client is for its kernel."""
ROLE_LABEL, IMAGE_ROLE = "gangway-role", "machine-image"
COMPUTE_URL = "https://compute.googleapis.com"
POLL_SEC = 10.0
BUILD_SEC = 5400
"""How long the builder may work. It is deleted a while later, also if `up` was interrupted."""
_GRACE_SEC = 1800
_MAX_NAME = 63
STARTUP = """\
#!/usr/bin/env bash
# Provisions this machine, and says how that ended.
metadata() { curl -fsS --retry 5 --max-time 20 -H 'Metadata-Flavor: Google' "$@"; }
instance=http://metadata.google.internal/computeMetadata/v1/instance
if metadata "$instance/attributes/gangway-script" >/run/provision.sh && bash /run/provision.sh >/run/provision.log 2>&1
then result=done
else result="failed: $(tail -c 1000 /run/provision.log)"
fi
cloud-init clean --logs
metadata -X PUT --data-binary "$result" "$instance/guest-attributes/gangway/result"
"""


class MachineImageArgs(TypedDict):
    """Inputs of MachineImage. `base_image`: an image of Ubuntu; `script`: bash, run as root; the builder, in
    `subnet_id`, needs a way to the internet; `service_account_email`: with which it pulls containers; `keep` (3): how
    many images stay, the newest and at least 2, since templates name the last one until `up` ends; `root_volume_gib`
    and `secure_boot` (true) are the nodes'; `tags` are labels.
    """

    project: str
    zone: str
    stack: str
    base_image: pulumi.Input[str]
    script: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    security_group_ids: list[pulumi.Input[str]]
    service_account_email: pulumi.Input[str]
    root_volume_gib: int
    secure_boot: NotRequired[bool]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    keep: NotRequired[int]
    tags: dict[str, str]


def image_name(stack: str, base_image: str, script: str, root_volume_gib: int) -> str:
    """The image's name: another base, script or size makes another image.

    >>> image_name("demo", "projects/p/global/images/b", "#!/usr/bin/env bash", 100)
    'demo-nodes-f073370c2a5c'
    """
    digest = hashlib.sha256(json.dumps([base_image, script, root_volume_gib]).encode()).hexdigest()[:12]
    return f"{shortened(stack, _MAX_NAME - len('-nodes-') - len(digest))}-nodes-{digest}"


def builder_body(props: Mapping[str, Any]) -> dict[str, Any]:
    """The builder as `instances.insert` takes it: no external address, and deleted whatever happens."""
    place, key = f"zones/{props['zone']}", props["kms_key_name"]
    disk = {
        "sourceImage": props["base_image"],
        "diskSizeGb": str(int(props["root_volume_gib"])),
        "diskType": f"{place}/diskTypes/pd-balanced",
        "labels": props["labels"],
    }
    metadata = {
        "startup-script": STARTUP,
        "gangway-script": props["script"],
        "enable-guest-attributes": "TRUE",
        "enable-oslogin": "TRUE",
        "block-project-ssh-keys": "TRUE",
    }
    return {
        "name": props["image"],
        "machineType": f"{place}/machineTypes/{BUILDER_TYPE}",
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": disk,
                **({"diskEncryptionKey": {"kmsKeyName": key}} if key else {}),
            }
        ],
        "networkInterfaces": [{"subnetwork": props["subnet_id"]}],
        "tags": {"items": props["security_group_ids"]},
        "serviceAccounts": [{"email": props["service_account_email"], "scopes": SCOPES}],
        "scheduling": {
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
            "maxRunDuration": {"seconds": str(BUILD_SEC + _GRACE_SEC)},
            "instanceTerminationAction": "DELETE",
        },
        "shieldedInstanceConfig": {
            "enableSecureBoot": props["secure_boot"],
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
        },
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "labels": props["labels"],
    }


class ComputeApi(TpuApi):
    """Calls of the Compute Engine API. `path` begins with `projects/`."""

    _version = "compute/v1"
    _quota_fix = f"ask for quota of E2 CPUs for the builder, an {BUILDER_TYPE} (IAM & Admin, Quotas), or run `up` later"

    def find(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """The resource, or None if there is none."""
        try:
            return self._call("GET", path, query)
        except TpuError as error:
            if error.status == 404:
                return None
            raise

    def list_images(self, project: str, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The project's images with these labels, page by page."""
        query = {"filter": " AND ".join(f"(labels.{name} = {value})" for name, value in labels.items())}
        while True:
            page = self._call("GET", f"projects/{project}/global/images", query)
            yield from page.get("items", [])
            if not page.get("nextPageToken"):
                return
            query = {**query, "pageToken": page["nextPageToken"]}

    def change(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Send a change, and wait until it is done. A missing resource is no error for DELETE."""
        # Kept in retries: the API then does the same change once.
        query = {"requestId": str(uuid.uuid4())}
        try:
            operation = self._call(method, path, query, body)
        except TpuError as error:
            if method == "DELETE" and error.status == 404:
                return
            raise
        place = path.partition("/instances")[0].partition("/images")[0]
        while operation.get("status") != "DONE":
            self._sleep(POLL_SEC)
            operation = self._call("GET", f"{place}/operations/{operation['name']}")
        if "error" in operation:
            raise TpuError(f"{method} {path}: {'; '.join(each['message'] for each in operation['error']['errors'])}")


class ImageWork:
    """Builds and deletes the images of one stack."""

    def __init__(self, api: ComputeApi, props: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep) -> None:
        self._api, self._props, self._sleep = api, props, sleep
        self._images = f"projects/{props['project']}/global/images"
        self._zone = f"projects/{props['project']}/zones/{props['zone']}"
        self._builder = f"{self._zone}/instances/{props['image']}"

    def build(self) -> None:
        """Make the image, unless it exists. TpuError: the script failed, with its last lines; the builder is gone."""
        image = f"{self._images}/{self._props['image']}"
        found = self._api.find(image)
        if found and found.get("status") == "READY":
            return
        # Left by an interrupted run.
        self._api.change("DELETE", image)
        self._api.change("DELETE", self._builder)
        print(f"{image}: a {BUILDER_TYPE} provisions it, which takes some minutes", flush=True)
        self._api.change("POST", f"{self._zone}/instances", builder_body(self._props))
        try:
            self._wait_provisioned()
            self._api.change("POST", f"{self._builder}/stop")
            key = self._props["kms_key_name"]
            body = {
                "name": self._props["image"],
                "sourceDisk": f"{self._zone}/disks/{self._props['image']}",
                "labels": self._props["labels"],
                **({"imageEncryptionKey": {"kmsKeyName": key}} if key else {}),
            }
            self._api.change("POST", self._images, body)
        finally:
            self._api.change("DELETE", self._builder)

    def _wait_provisioned(self) -> None:
        deadline = time.monotonic() + BUILD_SEC
        while True:
            answer = self._api.find(f"{self._builder}/getGuestAttributes", {"variableKey": "gangway/result"})
            result = str((answer or {}).get("variableValue", ""))
            if result == "done":
                return
            if result or time.monotonic() >= deadline:
                why = result or f"no result after {BUILD_SEC} s"
                raise TpuError(f"{self._props['image']}: the machine image was not built: {why}; `up` tries again")
            self._sleep(POLL_SEC)

    def delete_old(self, keep: int) -> None:
        """Delete all but the newest `keep` images; the current one counts as the newest. Nodes that run continue."""
        labels = {ROLE_LABEL: IMAGE_ROLE, STACK_LABEL: self._props["labels"][STACK_LABEL]}
        current = self._props["image"]
        found = sorted(
            self._api.list_images(self._props["project"], labels),
            key=lambda image: (image["name"] == current, image["creationTimestamp"]),
            reverse=True,
        )
        for image in found[keep:]:
            self._api.change("DELETE", f"{self._images}/{image['name']}")
            print(f"{image['name']}: deleted", flush=True)


def _work(props: Mapping[str, Any]) -> ImageWork:
    """Created per call: a stored one would be pickled into state."""
    return ImageWork(ComputeApi(props["api_url"]), props)


class BuiltImageProvider(ResourceProvider):
    """Builds an image whenever its name is another, and deletes all with the stack."""

    # It contains no secret, and a secret would hide every difference in a preview.
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Images of an earlier stack with this name may exist."""
        self._make(props)
        return CreateResult(f"{props['project']}/{props['labels'][STACK_LABEL]}/{IMAGE_ROLE}", props)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Images of another project are others. What only the next builder has waits for the next image."""
        replaces = ["project"] if olds.get("project") != news.get("project") else []
        changed = bool(replaces) or any(olds.get(key) != news.get(key) for key in ("image", "keep"))
        return DiffResult(changed, replaces, [], delete_before_replace=False)

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """The newest stay."""
        self._make(news)
        return UpdateResult(news)

    def _make(self, props: dict[str, Any]) -> None:
        _work(props).build()
        _work(props).delete_old(int(props["keep"]))

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """None stays."""
        _work(props).delete_old(0)


class BuiltImage(Resource, module="gangway", name="BuiltImage"):
    """The current image, and at most `keep` in all."""

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(BuiltImageProvider(), name, dict(props), opts)


class MachineImage(pulumi.ComponentResource):
    """An image with the script's software. Another script or base builds another, for nodes that start later."""

    image_id: pulumi.Output[str]

    def __init__(self, name: str, args: MachineImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:MachineImage", name, None, opts)
        keep = args.get("keep", 3)
        if keep < 2:
            raise InputError("MachineImage.keep", "too few", value=keep, allowed="2 or more", fix="keep=2")
        image = pulumi.Output.all(args["base_image"], args["script"]).apply(
            lambda known: image_name(args["stack"], known[0], known[1], args["root_volume_gib"])
        )
        props = {
            **{name: value for name, value in args.items() if name not in ("stack", "tags")},
            "image": image,
            "keep": keep,
            "labels": {**args["tags"], STACK_LABEL: args["stack"], ROLE_LABEL: IMAGE_ROLE},
            "secure_boot": args.get("secure_boot", True),
            "kms_key_name": args.get("kms_key_name"),
            "api_url": api_url(),
        }
        built = BuiltImage(f"{name}-image", props, pulumi.ResourceOptions(parent=self))
        # Known in a preview, and so is what uses it.
        self.image_id = after(image.apply(lambda known: f"projects/{args['project']}/global/images/{known}"), built)
        register_outputs(self)


def api_url() -> str:
    """Compute Engine's, or a stand-in's before the API's host, as on machines."""
    import os

    stand_in = os.environ.get("GANGWAY_API_URL")
    return COMPUTE_URL if stand_in is None else f"{stand_in}/compute.googleapis.com"
