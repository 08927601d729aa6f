"""EncryptionKey: one customer-managed KMS key for everything a stack stores, where Google's own keys are not enough.

Optional, some cents a month for each version. Google's services read and write through service agents of the project;
those a stack uses may use its key, and nobody else: the nodes themselves never touch it. A key ring can never be
deleted, only its keys: destroying the stack leaves an empty ring, which costs nothing. Not a place for other secrets.
"""

from typing import TypedDict

import pulumi
from pulumi_gcp import kms, logging, projects, storage

from components.gcp.policies import KEY_USER
from components.gcp.services import agent_of
from components.order import after

__all__ = ["EncryptionKey", "EncryptionKeyArgs"]

ROTATION_SEC = 90 * 24 * 3600
# Destroying the stack leaves this time to notice that something encrypted is still wanted.
DELETION_SEC = 30 * 24 * 3600
# Made when first asked for; the agents of the others exist as soon as the API is enabled.
MADE_ON_REQUEST = ("artifactregistry", "filestore", "lustre", "pubsub", "tpu", "workflows")
# Named otherwise than the part of the stack that they serve.
API_NAMES = {"filestore": "file"}
USUAL = ("compute", "storage", "artifactregistry", "logging", "pubsub")


class EncryptionKeyArgs(TypedDict):
    """Inputs of EncryptionKey.

    `project_number` is the number of `project`. `services` are those that use the key besides USUAL: lustre, filestore,
    tpu, workflows.
    """

    project: pulumi.Input[str]
    project_number: pulumi.Input[str]
    region: str
    services: list[str]
    tags: dict[str, str]


class EncryptionKey(pulumi.ComponentResource):
    """A rotating KMS key in a ring of its own, usable by the service agents of the stack."""

    key_name: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionKeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:EncryptionKey", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        ring = kms.KeyRing(f"{name}-data", project=args["project"], location=args["region"], opts=self._child)
        key = kms.CryptoKey(
            f"{name}-data",
            key_ring=ring.id,
            purpose="ENCRYPT_DECRYPT",
            rotation_period=f"{ROTATION_SEC}s",
            destroy_scheduled_duration=f"{DELETION_SEC}s",
            labels=args["tags"],
            opts=self._child,
        )
        users = [
            kms.CryptoKeyIAMMember(
                f"{name}-{service}", crypto_key_id=key.id, role=KEY_USER, member=self._agent(service), opts=self._child
            )
            for service in dict.fromkeys((*USUAL, *args["services"]))
        ]
        # Whoever takes the name from here waits until the services may use the key.
        self.key_name = after(key.id, *users)
        self.register_outputs({"key_name": self.key_name})

    def _agent(self, service: str) -> pulumi.Output[str]:
        """The service agent as a member. Asking for those of Storage and Logging makes them."""
        project, invoke = self._args["project"], pulumi.InvokeOptions(parent=self)
        if service == "storage":
            return storage.get_project_service_account_output(project=project, opts=invoke).member
        if service == "logging":
            settings = logging.get_project_cmek_settings_output(project=project, opts=invoke)
            return pulumi.Output.concat("serviceAccount:", settings.service_account_id)
        if service in MADE_ON_REQUEST:
            full = f"{API_NAMES.get(service, service)}.googleapis.com"
            return projects.ServiceIdentity(
                f"{self._name}-{service}", project=project, service=full, opts=self._child
            ).member
        return pulumi.Output.from_input(self._args["project_number"]).apply(lambda number: agent_of(service, number))
