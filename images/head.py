"""The head node's cloud-init: the rendezvous store, the record and, if wanted, Prometheus, each as a systemd unit.

It shares its scripts and its way of preparing with the workers (`images.render`). Pure, like everything here.
"""

from images.observability import render_prometheus
from images.render import ETC_DIR, NodeFile, cloud_config, scripts, unit
from images.shell import head_env_text
from images.specs import HeadInitSpec

__all__ = ["render_head_init"]


def render_head_init(spec: HeadInitSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Amazon Linux 2023."""
    with_files, with_prometheus = spec.lustre_dns_name is not None, spec.prometheus_image is not None
    # The store waits for its image alone: the file system is mounted by whoever puts the record.
    steps = ["pull-image.sh"]
    started = [
        "gangway-rendezvous.service",
        *(["gangway-record.timer"] if with_files else []),
        *(["gangway-prometheus.service"] if with_prometheus else []),
    ]
    units = ["gangway-prepare.service", *started, *(["gangway-record.service"] if with_files else [])]
    values = {"spec": spec, "steps": steps}
    files = [
        NodeFile(f"{ETC_DIR}/node.env", "0600", head_env_text(spec)),
        *scripts("aws", ["common.sh", *steps, *(["mount-lustre.sh", "upload-record.sh"] if with_files else [])]),
        *(unit("aws", name, values) for name in units),
    ]
    if with_prometheus:
        text = render_prometheus(spec.stack, spec.region, port=spec.metrics_port)
        files.append(NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text))
    return cloud_config("aws", files, "head node on Amazon Linux 2023", packages=["docker"], units=started)
