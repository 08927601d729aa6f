"""The stand-in for Pulumi's GCP plugin: what its answers look like, and what Google cannot change on a living resource.

It also refuses names and labels that Google would refuse. Not for TPU queues: those have a stand-in over HTTP of their
own (`tests/tpu_standin.py`). The tables are `standin.gcp_facts`.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from .gcp_facts import EXISTING, HELD_BY_USERS, ID_INPUTS, NUMBERED, OWN_IDS, REPLACING_INPUTS, SETTINGS, WHOLE_NAMES
from .service import Look, RefusedError, Service
from .shapes import Fault

PROJECT_NUMBER = "123456789012"
TOKEN_PREFIX = "ya29.access-token-"
"""Every access token begins so: a test that searches for it finds those that were never used, too."""

# RFC 1035, as Compute Engine wants it.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_MAX_LABELS = 64


class Gcp(Service):
    """One project."""

    sdk = "pulumi_gcp"
    replacing = REPLACING_INPUTS
    held = HELD_BY_USERS
    settings = SETTINGS
    stores: Mapping[str, str] = MappingProxyType({"gcp:storage/bucket:Bucket": "forceDestroy"})

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}

    def configure(self, args: Mapping[str, Any]) -> None:
        """See Service."""
        self._config = args

    @property
    def _project(self) -> str:
        return str(self._config.get("project", "lab"))

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """See Service."""
        name = inputs.get("name")
        if type_token.startswith("gcp:compute/") and isinstance(name, str) and not _NAME.fullmatch(name):
            yield "name", f"{name!r} doesn't match regexp {_NAME.pattern}"
        # Where both are, `labels` say what the thing is: a channel's address.
        labels = inputs.get("userLabels") or inputs.get("labels") or {}
        if len(labels) > _MAX_LABELS:
            yield "labels", f"{len(labels)} labels, {_MAX_LABELS} at most"
        for key, value in labels.items():
            if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
                yield f"labels.{key}", f"{value!r}: neither key nor value of a label may look like this"

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """See Service. A part of another resource is named after that; the rest after the project and its place."""
        if keys := ID_INPUTS.get(type_token):
            return "/".join(str(inputs[key]) for key in keys if key in inputs)
        if collection := NUMBERED.get(type_token):
            return f"{collection}/{secrets.randbelow(10**15)}"
        chosen = str(next((inputs[key] for key in OWN_IDS if inputs.get(key)), f"{name}-{secrets.token_hex(4)}"))
        if chosen.startswith("projects/") or type_token in WHOLE_NAMES:
            return chosen
        place = next((f"{key}s/{inputs[key]}" for key in ("zone", "region", "location") if key in inputs), "global")
        kind = type_token.split(":")[1].partition("/")[2]
        return f"projects/{inputs.get('project', self._project)}/{place}/{kind}s/{chosen}"

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See Service."""
        labels = inputs.get("labels", {})
        if before:
            return {**before, "effectiveLabels": labels, "pulumiLabels": labels}
        project, name = inputs.get("project", self._project), id_.rpartition("/")[2]
        service = inputs.get("service", "").partition(".")[0]
        email = f"{name}@{project}.iam.gserviceaccount.com"
        if type_token == "gcp:projects/serviceIdentity:ServiceIdentity":
            email = f"service-{PROJECT_NUMBER}@gcp-sa-{service}.iam.gserviceaccount.com"
        address = f"10.42.0.{4 + secrets.randbelow(200)}"
        return {
            "address": address,
            "effectiveLabels": labels,
            "email": email,
            "instanceGroup": f"{self._link(id_)}-instances",
            "member": f"serviceAccount:{email}",
            "mountPoint": f"{address}@tcp:/{inputs.get('filesystem', 'lustre')}",
            "name": name,
            "networkIp": address,
            "number": PROJECT_NUMBER,
            "registryUri": f"{inputs.get('location', 'us')}-docker.pkg.dev/{project}/{name}",
            "project": project,
            "pulumiLabels": labels,
            "selfLink": self._link(id_),
            "selfLinkUnique": f"{self._link(id_)}?uniqueId={secrets.randbelow(10**18)}",
            "uniqueId": str(secrets.randbelow(10**18)),
            "url": f"gs://{name}",
            "writerIdentity": f"serviceAccount:service-{PROJECT_NUMBER}@gcp-sa-logging.iam.gserviceaccount.com",
        }

    def ask(self, function: str, args: Mapping[str, Any], look: Look) -> dict[str, Any]:
        """See Service. A new token each time, as Google gives."""
        if function == "gcp:organizations/getClientConfig:getClientConfig":
            return {
                "accessToken": f"{TOKEN_PREFIX}{secrets.token_hex(16)}",
                "defaultLabels": {},
                "id": f"projects/{self._project}",
                "project": self._project,
                "region": self._config.get("region", ""),
                "zone": self._config.get("zone", ""),
            }
        if function == "gcp:serviceaccount/getS:getS":
            emails = [one["outputs"]["email"] for one in self.resources_of_type("gcp:serviceaccount/account:Account")]
            return {"id": args["project"], "project": args["project"], "accounts": [{"email": e} for e in emails]}
        if function == "gcp:secretmanager/getSecrets:getSecrets":
            key, _, value = args["filter"].removeprefix("labels.").partition("=")
            labels = [
                one["inputs"].get("labels", {}) for one in self.resources_of_type("gcp:secretmanager/secret:Secret")
            ]
            return {"id": args["project"], "secrets": [{"labels": own} for own in labels if own.get(key) == value]}
        if function == "gcp:compute/getImage:getImage":
            id_ = f"projects/{args['project']}/global/images/{args['family']}-v{self.newest()}"
            return {"id": id_, "selfLink": self._link(id_), "name": id_.rpartition("/")[2], **args}
        if function == "gcp:organizations/getProject:getProject":
            project = args.get("projectId", self._project)
            return {"id": f"projects/{project}", "projectId": project, "number": PROJECT_NUMBER, "name": project}
        if function in EXISTING:
            return self._existing(function, args)
        if function == "gcp:storage/getProjectServiceAccount:getProjectServiceAccount":
            email = f"service-{PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
            return {"id": email, "emailAddress": email, "member": f"serviceAccount:{email}", **args}
        if function == "gcp:logging/getProjectCmekSettings:getProjectCmekSettings":
            account = f"cmek-p{PROJECT_NUMBER}@gcp-sa-logging.iam.gserviceaccount.com"
            return {"id": f"projects/{self._project}/cmekSettings", "serviceAccountId": account, **args}
        raise RefusedError(f"the stand-in for {self.sdk} knows no function {function}")

    def _existing(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """What a test put into the cloud under its full name."""
        type_token, form = EXISTING[function]
        name = form.format(**args)
        found = next((one for one in self.resources_of_type(type_token) if one["id"] == name), None)
        if found is None:
            raise RefusedError(f"googleapi: Error 404: The resource '{name}' was not found, notFound")
        return {"id": name, **found["outputs"], **args}

    @staticmethod
    def _link(id_: str) -> str:
        return f"https://www.googleapis.com/compute/v1/{id_}"
