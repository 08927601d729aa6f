"""Lists the Google Cloud resources with a stack's label: Cloud Asset Inventory, searchAllResources of one project.

The index lags by minutes. Nodes of a group are recognised by its base name in their zone, disks by their names.
Permissions: cloudasset.assets.searchAllResources, serviceusage.services.use; the API enabled.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gangway.components.core.findings import InputError
from gangway.components.gcp.tpu.api import TpuError, open_session
from gangway.finops.audit.classify_orphans import Billed, CloudResource, Listing
from gangway.finops.audit.state import StateResource
from gangway.finops.prices.source import SourceError, Web, WebSession
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.settings import GcpConfig

BY_REGION = False
"""Whether `regions` has an effect."""
API_URL = "https://cloudasset.googleapis.com"
LABEL = "gangway-stack"
PAGE_SIZE = "500"
# versionedResources holds the resource's fields.
READ_MASK = "name,assetType,displayName,location,labels,state,versionedResources"
_GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
_SUFFIX = 5
"""A group appends a hyphen and four characters to its base name."""
_LEAVING = ("TERMINATED", "STOPPING", "DELETING", "SUSPENDED", "PREEMPTED")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_FREE = frozenset(
    {
        *("compute.googleapis.com/Firewall", "compute.googleapis.com/InstanceGroupManager"),
        *("compute.googleapis.com/InstanceTemplate", "compute.googleapis.com/Network"),
        *("compute.googleapis.com/Subnetwork", "iam.googleapis.com/ServiceAccount"),
    }
)


def list_resources(config: StackConfig, regions: str | None) -> Listing:  # of all regions at once
    """The resources with the stack's label. InputError: no credentials, a missing permission, or no answer."""
    project = config.section(GcpConfig).project
    return list_gcp(open_web(project), project, config.stack)


def list_gcp(web: Web, project: str, stack: str, api_url: str = API_URL) -> Listing:
    """List all resources with the stack's label. InputError: unreachable, API disabled, or a missing permission."""
    found = [_resource(row, stack) for row in _rows(web, project, stack, api_url)]
    notes = ("Cloud Asset Inventory lags by minutes: new resources may be missing and deleted ones still listed",)
    return Listing(tuple(found), f"project {project}", notes)


def open_web(project: str) -> Web:
    """Open a session with the caller's Google credentials. InputError: there are none."""
    try:
        session = open_session(API_URL)
    except TpuError as problem:
        fix = "gcloud auth application-default login, with a role that may search assets"
        raise InputError(f"Google Cloud, project {project}", str(problem), fix=fix) from None
    return Web(cast(WebSession, session))


def state_keys(resource: StateResource) -> set[str]:
    """Keys of a state resource in the listing or among `owners`: its path, or a group's base name."""
    outputs = resource.outputs
    links = (resource.id, outputs.get("selfLink"), outputs.get("name") if "/" in str(outputs.get("name")) else None)
    keys = {_path(link) for link in links if isinstance(link, str) and "/" in link}
    if resource.type == "gcp:storage/bucket:Bucket":
        keys.add(resource.id)
    if resource.type == _GROUP:
        keys.add(_base_key(_last(str(outputs.get("zone"))), str(outputs.get("baseInstanceName"))))
    # A queued TPU request lists its nodes by bare names.
    names = outputs.get("node_names") or ()
    parent = _path(resource.id).partition("/queuedResources/")[0]
    return keys | {f"{parent}/nodes/{_last(name)}" for name in names}


def price_region(location: str) -> str:
    """Return the region of a zone; any other location unchanged.

    >>> price_region("us-central1-a")
    'us-central1'
    """
    return location.rpartition("-")[0] if _ZONE.fullmatch(location) else location


def _rows(web: Web, project: str, stack: str, api_url: str) -> Iterator[Mapping[str, Any]]:
    parameters = {"query": f"labels.{LABEL}={stack}", "pageSize": PAGE_SIZE, "readMask": READ_MASK}
    url = f"{api_url}/v1/projects/{project}:searchAllResources"
    while True:
        try:
            page = web.json(url, parameters)
        except SourceError as problem:
            raise InputError(
                f"Google Cloud, project {project}",
                "request failed",
                value=str(problem),
                allowed="the API cloudasset.googleapis.com enabled, and the role Cloud Asset Viewer",
                fix=f"gcloud services enable cloudasset.googleapis.com --project {project}, and "
                "gcloud auth application-default login",
            ) from None
        # The search matches words; compare the label exactly.
        yield from (row for row in page.get("results", ()) if row.get("labels", {}).get(LABEL) == stack)
        if not page.get("nextPageToken"):
            return
        parameters = {**parameters, "pageToken": page["nextPageToken"]}


def _resource(row: Mapping[str, Any], stack: str) -> CloudResource:
    kind, path, location = row["assetType"], _path(row["name"]), row.get("location", "")
    name = _last(path)
    versions = row.get("versionedResources") or [{}]
    content = versions[0].get("resource", {})
    return CloudResource(
        id=row["name"],
        keys=frozenset({path}),
        kind=kind,
        name=row.get("displayName") or name,
        region=location,
        owners=_owners(kind, path, location, name),
        gone=row["state"].lower() if kind.endswith("/Node") and row.get("state") in _LEAVING else "",
        kept=_retention_reason(kind, name, stack),
        billed=_bill(kind, row.get("state", ""), content),
    )


def _owners(kind: str, path: str, location: str, name: str) -> frozenset[str]:
    if kind == "compute.googleapis.com/Instance":
        return frozenset({_base_key(location, name[:-_SUFFIX])})
    if kind == "compute.googleapis.com/Disk":
        # A boot disk has its machine's name.
        return frozenset({path.replace("/disks/", "/instances/"), _base_key(location, name[:-_SUFFIX])})
    return frozenset()


def _bill(kind: str, state: str, content: Mapping[str, Any]) -> tuple[Billed, ...] | None:
    if kind in _FREE:
        return ()
    match kind.rpartition("/")[2], content:
        case ["Instance", {"machineType": machine_type}]:
            if state in _LEAVING:
                return ()  # stopped: its disks cost, and are listed
            spot = content.get("scheduling", {}).get("provisioningModel") == "SPOT"
            return (Billed(_last(machine_type), kind="machine", market="spot" if spot else "on-demand"),)
        case ["Disk", {"sizeGb": size, "type": disk_type}]:
            return (Billed(_last(disk_type), float(size)),)
        case ["Node", {"acceleratorType": accelerator}]:
            spot = content.get("schedulingConfig", {}).get("spot") is True
            return (Billed(accelerator, kind="slice", market="spot" if spot else "on-demand"),)
        case ["CryptoKey", _]:
            return (Billed("kms-key"),)
    return None


def _retention_reason(kind: str, name: str, stack: str) -> str:
    if kind == "storage.googleapis.com/Bucket" and name.startswith(f"{stack}-runs"):
        return "the run bucket: outlives its stack"
    if kind == "cloudkms.googleapis.com/CryptoKey":
        return "Google Cloud deletes no keys, only their versions"
    return ""


def _base_key(zone: str, base: str) -> str:
    return f"nodes of {base} in {zone}"


def _path(name: str) -> str:
    """The common form of asset names, self links and ids: the part after the project.

    >>> _path("//compute.googleapis.com/projects/p/zones/z/disks/d")
    'zones/z/disks/d'
    >>> _path("https://www.googleapis.com/compute/v1/projects/123/zones/z/disks/d")
    'zones/z/disks/d'
    >>> _path("//storage.googleapis.com/a-bucket")
    'a-bucket'
    """
    after_host = name.partition("://")[2] if "://" in name else name.removeprefix("//")
    if "projects/" in name:
        return name.partition("projects/")[2].partition("/")[2]
    return after_host.partition("/")[2] if name.startswith("//") else after_host


def _last(path: str) -> str:
    return path.rpartition("/")[2]
