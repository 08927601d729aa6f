"""StackSecret: a stack's key in Secret Manager, only in the stack's region."""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import secretmanager

from gangway.components.core.dependencies import after

__all__ = ["SECRET_READER", "StackSecret", "StackSecretArgs"]

SECRET_READER = "roles/secretmanager.secretAccessor"


class StackSecretArgs(TypedDict):
    """Inputs of StackSecret. `pem`: of `.member_key` or `.signing_key`; `kms_key_name` replaces Google's own key."""

    project: pulumi.Input[str]
    region: str
    pem: pulumi.Input[str]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class StackSecret(pulumi.ComponentResource):
    """A secret with one version. `secret_id`, `projects/P/secrets/NAME`: known once readable."""

    secret_id: pulumi.Output[str]

    def __init__(self, name: str, args: StackSecretArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:StackSecret", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # The name is fixed.
        first = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(delete_before_replace=True))
        key = args.get("kms_key_name")
        encryption = secretmanager.SecretReplicationUserManagedReplicaCustomerManagedEncryptionArgs
        secret = secretmanager.Secret(
            name,
            project=args["project"],
            secret_id=name,
            replication=secretmanager.SecretReplicationArgs(
                user_managed=secretmanager.SecretReplicationUserManagedArgs(
                    replicas=[
                        secretmanager.SecretReplicationUserManagedReplicaArgs(
                            location=args["region"],
                            customer_managed_encryption=None if key is None else encryption(kms_key_name=key),
                        )
                    ]
                )
            ),
            labels=args["tags"],
            opts=first,
        )
        version = secretmanager.SecretVersion(
            name, secret=secret.id, secret_data=pulumi.Output.secret(args["pem"]), opts=child
        )
        self.secret_id = after(secret.id, version)
        self.register_outputs({"secret_id": self.secret_id})
