"""What AKS makes of a cluster's inputs, and what it tells whoever wants to log in: a part of `standin.azure`."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import yaml

CLUSTER = "containerservice:ManagedCluster"


def known_of_cluster(id_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of a cluster beside its inputs: the same each time."""
    issuer = f"https://{inputs['location']}.oic.prod-aks.azure.com/{_digits(id_)}/"
    private = (inputs.get("apiServerAccessProfile") or {}).get("enablePrivateCluster", False)
    return {
        "oidcIssuerProfile": {"issuerURL": issuer},
        "privateFQDN" if private else "fqdn": _host(id_, inputs, private),
    }


def credentials(id_: str, inputs: Mapping[str, Any]) -> str:
    """A kubeconfig in base64, whose user is somebody of Entra ID."""
    name, known = id_.rpartition("/")[2], known_of_cluster(id_, inputs)
    host = known.get("fqdn") or known["privateFQDN"]
    user = f"clusterUser_{inputs['resourceGroupName']}_{name}"
    login = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "kubelogin", "args": ["get-token"]}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"certificate-authority-data": "Y2E=", "server": f"https://{host}:443"}}
        ],
        "users": [{"name": user, "user": {"exec": login}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return b64encode(yaml.safe_dump(config).encode()).decode()


def _host(id_: str, inputs: Mapping[str, Any], private: bool) -> str:
    zone = "privatelink" if private else "hcp"
    return f"{inputs['dnsPrefix']}-{_digits(id_)}.{zone}.{inputs['location']}.azmk8s.io"


def _digits(id_: str) -> str:
    return hashlib.sha256(id_.encode()).hexdigest()[:8]
