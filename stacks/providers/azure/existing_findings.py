"""Findings about the existing resources of a stack on Azure: which it uses, and what they must allow."""

from collections.abc import Iterator

from gangway.components.azure.network import LUSTRE_PORTS
from gangway.components.azure.policies import RUN_WRITER_ACTIONS, head_actions, node_actions
from gangway.components.core.findings import Finding
from gangway.stacks.base.shared import RENDEZVOUS_PORT, metrics_text, scrapes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing_settings import PLACE
from gangway.stacks.providers.azure.settings import AzureConfig, get_existing, provided

_KEY_ROLE = "Key Vault Crypto Service Encryption User"


def existing_findings(config: StackConfig) -> Iterator[Finding]:
    """Nothing without existing resources."""
    own = get_existing(config)
    if ids := provided(config):
        yield Finding.info(
            "existing.provided",
            PLACE,
            f"used as they are, not created, tagged, deleted or in the estimate: {', '.join(ids.values())}",
        )
    if own.subnet_id is not None:
        yield from _network(config)
    if own.key is not None:
        yield Finding.info(
            "existing.key-policy",
            f"{PLACE}.key",
            f"the stack grants nothing on the key: {own.key.identity_id} and the identity of "
            f"{own.key.disk_encryption_set_id} need the role {_KEY_ROLE} on {own.key.key_id}, and the vault's firewall "
            "must admit trusted Microsoft services",
            "ask the vault's owner",
        )
    identities = {"node": own.node_identity_id, "head": own.head_identity_id}
    for role, identity in identities.items():
        if identity is not None:
            yield Finding.info(
                "existing.role-permissions",
                f"{PLACE}.{role}_identity_id",
                f"the stack grants it nothing. It needs: {'; '.join(identity_needs(config, role))}. To run `up` you "
                "need the role Managed Identity Operator on it",
                "ask its owner for these roles",
            )
    shared = {"registry_id": own.registry_id, "run_container_id": own.run_container_id}
    named = [name for name, value in shared.items() if value is not None]
    if named and None in identities.values():
        yield Finding.info(
            "existing.policies",
            f"{PLACE}.{named[0]}",
            f"{' and '.join(named)} get a role assignment for the stack's own identities, which `destroy` removes",
            "to leave them as they are, set node_identity_id and head_identity_id",
        )


def _network(config: StackConfig) -> Iterator[Finding]:
    for name in sorted({"cidr", "flow_logs"} & config.network.model_fields_set):
        path = f"gangway:network.{name}"
        yield Finding.warning(
            "existing.ignored-setting", path, "no effect: the existing network has its own", f"remove {name}"
        )
    lustre = "" if config.storage is None else f"; {' and '.join(LUSTRE_PORTS)} between machines and file system"
    metrics = metrics_text(config)
    yield Finding.info(
        "existing.network-owner",
        f"{PLACE}.subnet_id",
        "its owner decides what machines reach: the stack adds no rule, route, endpoint or flow log. It must allow TCP "
        f"between nodes; {RENDEZVOUS_PORT} from nodes to the head; {metrics} from the head to nodes; 443 to "
        f"Azure's services{lustre}. Rules of a firewall, effective routes and DNS servers are not checked",
        f"gangway preflight {config.stack_name}",
    )


def identity_needs(config: StackConfig, role: str) -> list[str]:
    """What the stack would grant its own identity of `node` or `head`. Scopes that only `up` knows are in the group."""
    own, group = get_existing(config), get_existing(config).resource_group_id
    actions = {
        "node": node_actions(self_termination=config.nodes_leave),
        "head": head_actions(fills_groups=True, scrapes=scrapes(config)),
    }[role]
    registry = own.registry_id or config.section(AzureConfig).registry_id or group
    return [
        f"AcrPull on {registry}",
        f"a custom role with the data actions {', '.join(RUN_WRITER_ACTIONS)} on {own.run_container_id or group}",
        f"Monitoring Metrics Publisher and Key Vault Secrets User on {group}",
        *([f"a custom role with the actions {', '.join(actions)} on {group}"] if actions else []),
    ]
