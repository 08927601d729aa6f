"""The lookups of a stack on Google Cloud, made before its first resource. In a new project the stack itself enables the
APIs, so lookups that fail because an API is off are repeated after that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pulumi
import pulumi_gcp as gcp

from gangway.components.core.lookup import Lookup, LookupFailedError, Postponed, look_up
from gangway.components.gcp.identity import account_id
from gangway.components.gcp.launch import GPU_IMAGE, HEAD_IMAGE
from gangway.stacks.base.ownership import Owner
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.existing import get_existing
from gangway.stacks.providers.gcp.plan import GcpPlan

FAMILY = "/images/family/"
LOGIN = "log in with `gcloud auth application-default login`"
_API_IS_OFF = ("SERVICE_DISABLED", "accessNotConfigured", "has not been used in project")


@dataclass(frozen=True)
class Lookups:
    """The answers. `images`: the newest of their families; `agents`: service agents of Storage and Logging as IAM
    members, which the lookup creates; only with a key; `token`: pushes the image; None if none is built.
    """

    project_number: Postponed[str]
    images: Mapping[str, Postponed[str]]
    agents: Mapping[str, Postponed[str]]
    token: pulumi.Output[str] | None


def written_images(config: StackConfig, planned: GcpPlan) -> dict[str, str]:
    """The images of the GPU nodes and the head, as the stack file or its default names them."""
    nodes = {} if planned.tpu else {"nodes": config.cluster.image_id or GPU_IMAGE}
    return nodes | ({"head": HEAD_IMAGE} if planned.head else {})


def look_up_all(config: StackConfig, planned: GcpPlan, provider: gcp.Provider) -> Lookups:
    """Makes all lookups. LookupFailedError: the first that fails."""
    opts, project = pulumi.InvokeOptions(provider=provider), planned.project
    ask = _Requests(opts, project)
    images = {} if planned.standing else written_images(config, planned)
    keyed = config.encryption == "customer-key" and get_existing(config).kms_key is None
    built = config.ready_image is None and not planned.standing
    return Lookups(
        _postpone(ask.project_number),
        {what: _postpone(partial(ask.image, what, image)) for what, image in images.items() if FAMILY in image},
        {"storage": _postpone(ask.storage_agent), "logging": _postpone(ask.logging_agent)} if keyed else {},
        pulumi.Output.secret(ask.token()) if built else None,
    )


def _postpone(ask: Callable[[], str]) -> Postponed[str]:
    return Postponed.now(ask, lambda answer: any(words in answer for words in _API_IS_OFF))


@dataclass(frozen=True)
class _Requests:
    opts: pulumi.InvokeOptions
    project: str

    def _lookup(self, subject: str, place: str = "gangway:gcp.project", fix: str = "") -> Lookup:
        fix = fix or f"{LOGIN} as a user who may view project {self.project}, or correct gangway:gcp.project"
        return Lookup(subject, f"project {self.project}", place, fix)

    def project_number(self) -> str:
        lookup = self._lookup(f"the number of project {self.project}")
        return look_up(lookup, gcp.organizations.get_project, project_id=self.project, opts=self.opts).number

    def image(self, what: str, image: str) -> str:
        _, of, *_, family = image.split("/")
        place = "gangway:cluster.image_id" if what == "nodes" else "gangway:cluster"
        set_it = "; or set gangway:cluster.image_id to your own image" if what == "nodes" else ""
        command = f"gcloud compute images describe-from-family {family} --project {of}"
        fix = f"{LOGIN}; `{command}` must succeed with access to gangway:gcp.project{set_it}"
        lookup = self._lookup(f"the newest image of the {what} (family {family} of {of})", place, fix)
        return look_up(lookup, gcp.compute.get_image, family=family, project=of, opts=self.opts).self_link

    def storage_agent(self) -> str:
        lookup = self._lookup("the service agent of Cloud Storage", "gangway:encryption")
        function = gcp.storage.get_project_service_account
        return look_up(lookup, function, project=self.project, opts=self.opts).member

    def logging_agent(self) -> str:
        lookup = self._lookup("the service agent of Cloud Logging", "gangway:encryption")
        function = gcp.logging.get_project_cmek_settings
        return f"serviceAccount:{look_up(lookup, function, project=self.project, opts=self.opts).service_account_id}"

    def token(self) -> str:
        fix = f"{LOGIN}; or set gangway:image.prebuilt to an image that is already in a registry"
        lookup = self._lookup("the access token for pushing the image", "gangway:image", fix)
        return look_up(lookup, gcp.organizations.get_client_config, opts=self.opts).access_token


def find_owner(stack: str, project: str, provider: gcp.Provider, *, has_account: bool = True) -> Owner | None:
    """The stack whose nodes use the service account of this identity, or without such an account (`has_account`)
    the one that has secrets. LookupFailedError: the lookup failed.
    """
    opts = pulumi.InvokeOptions(provider=provider)
    if not has_account:
        secrets = _secret_labels(stack, project, opts)
        return next((Owner(f"a secret with the label gangway-stack={stack}", labels) for labels in secrets), None)
    email = f"{account_id(stack, 'node')}@{project}.iam.gserviceaccount.com"
    lookup = _lookup("the service accounts", project, "iam.serviceAccounts.list")
    found = look_up(lookup, gcp.serviceaccount.get_s, project=project, opts=opts).accounts
    if not any(account.email == email for account in found):
        return None
    return Owner(f"service account {email}", _labels(stack, project, opts))


def _labels(stack: str, project: str, opts: pulumi.InvokeOptions) -> Mapping[str, str]:
    """The labels of one of the stack's secrets, as accounts have no labels. Empty if no secret is visible."""
    try:
        return next(iter(_secret_labels(stack, project, opts)), {})
    except LookupFailedError:  # the stack is known without labels
        return {}


def _secret_labels(stack: str, project: str, opts: pulumi.InvokeOptions) -> list[Mapping[str, str]]:
    """The labels of each of the stack's secrets. LookupFailedError: the lookup failed."""
    lookup = _lookup("the secrets", project, "secretmanager.secrets.list")
    labels = f"labels.gangway-stack={stack}"
    function = gcp.secretmanager.get_secrets
    return [dict(one.labels) for one in look_up(lookup, function, project=project, filter=labels, opts=opts).secrets]


def _lookup(subject: str, project: str, permission: str) -> Lookup:
    return Lookup(subject, f"project {project}", "gangway:identity", f"{LOGIN} as a user with {permission}")
