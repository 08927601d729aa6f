"""The head node's cloud-init: the rendezvous store, the run record and, if wanted, Prometheus, as systemd units."""

from images.observability import render_prometheus
from images.render import ETC_DIR, NodeFile, cloud_config, scripts, unit
from images.shell import head_env_text, log_argv
from images.specs import HeadInitSpec

__all__ = ["render_head_init"]


def render_head_init(spec: HeadInitSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Amazon Linux 2023."""
    with_files, with_prometheus = spec.lustre_dns_name is not None, spec.prometheus_image is not None
    # When the job began stands on the file system.
    with_watch = with_files and spec.max_hours is not None
    # The store waits for its image alone: the file system is mounted by whoever puts the record.
    steps = ["pull-image.sh"]
    timers = [*(["gangway-record"] if with_files else []), *(["gangway-watch"] if with_watch else [])]
    services = ["gangway-rendezvous.service", *(["gangway-prometheus.service"] if with_prometheus else [])]
    started = [*services, *(f"{name}.timer" for name in timers)]
    units = ["gangway-prepare.service", *started, *(f"{name}.service" for name in timers)]
    helpers = [
        *(["mount-lustre.sh", "upload-record.sh"] if with_files else []),
        *(["watch-node.sh"] if with_watch else []),
    ]
    values = {
        "image_has_docker": True,
        "log_options": lambda stream: _log_options(spec, stream),
        "mount": "mount-lustre.sh",
        "role": "head",
        "spec": spec,
        "steps": steps,
        "tries_again": True,
    }
    files = [
        NodeFile(f"{ETC_DIR}/node.env", "0600", head_env_text(spec)),
        *scripts("aws", ["common.sh", "cloud.sh", *steps, *helpers]),
        *(unit("aws", name, values) for name in units),
    ]
    if with_prometheus:
        text = render_prometheus(spec.stack, spec.region, port=spec.metrics_port)
        files.append(NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text))
    return cloud_config(files, "head node on Amazon Linux 2023", packages=["docker"], units=started)


def _log_options(spec: HeadInitSpec, stream: str) -> str:
    """Docker's logging options for a unit's command line; names of log groups and streams need no quoting there."""
    return "".join(f" {word}" for word in log_argv(spec.log_group, spec.region, stream))
