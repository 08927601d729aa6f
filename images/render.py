"""Renders the trainer's Dockerfile and the node's cloud-init, and packs the latter as EC2 user data.

Pure functions from a spec to text: no clock, no network, no file written. `render_cloud_init` is meant to run inside
`Output.all(...).apply(...)`, where the file system's DNS name and the bucket have become plain strings.
"""

import base64
import gzip
from functools import cache
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from images.shell import CONTAINER_NAME, job_env_text, job_json_text, node_env_text
from images.specs import TRAINER_UID, DockerfileSpec, NodeInitSpec

__all__ = ["USER_DATA_LIMIT_BYTES", "render_cloud_init", "render_dockerfile", "user_data_base64gzip"]

# EC2 counts the bytes before base64 (EC2 User Guide, "Run commands when you launch an EC2 instance with user data").
USER_DATA_LIMIT_BYTES = 16_384

BIN_DIR = "/opt/gangway/bin"
ETC_DIR = "/etc/gangway"
# torchrun kills its workers after the job's shutdown timeout; systemd must not be faster than that.
STOP_MARGIN_SEC = 15


class _NodeFile(NamedTuple):
    path: str
    mode: str
    text: str


def render_dockerfile(spec: DockerfileSpec) -> str:
    """The trainer's Dockerfile; its build context is the repository root."""
    return _environment().get_template("Dockerfile.j2").render(spec=spec, uid=TRAINER_UID)


def render_cloud_init(spec: NodeInitSpec) -> str:
    """The node's `#cloud-config` document, plain ASCII.

    Preparation is a systemd unit rather than a list of runcmd steps, so a reboot mounts and checks again.
    """
    steps = _preparation(spec)
    scripts = ["common.sh", *steps, "run-trainer.sh", "spot-watch.sh", "upload-record.sh"]
    files = [
        _NodeFile(f"{ETC_DIR}/job.json", "0600", job_json_text(spec)),
        _NodeFile(f"{ETC_DIR}/job.env", "0600", job_env_text(spec)),
        _NodeFile(f"{ETC_DIR}/node.env", "0600", node_env_text(spec)),
        *(_NodeFile(f"{BIN_DIR}/{name}", "0755", _source(f"{spec.cloud}/{name}")) for name in scripts),
        *(_unit(name, spec, steps) for name in ("gangway-prepare", "gangway-trainer", "gangway-spot-watch")),
    ]
    return _environment().get_template(f"cloud-init-{spec.cloud}.yaml.j2").render(files=files)


def user_data_base64gzip(text: str) -> str:
    """EC2 user data: gzip, then base64; the same text gives the same bytes (under one build of zlib).

    Raises:
        ValueError: the compressed text is above EC2's limit.
    """
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    if len(packed) > USER_DATA_LIMIT_BYTES:
        raise ValueError(
            f"user data: {len(packed)} bytes after gzip; allowed: at most {USER_DATA_LIMIT_BYTES} (EC2's limit); "
            "fix: shorten the job's env and argv, for example by a file on the parallel file system"
        )
    return base64.b64encode(packed).decode()


def _preparation(spec: NodeInitSpec) -> list[str]:
    """Scripts that must succeed before the trainer starts: what needs no network first, the long download last."""
    planned = {
        "check-efa.sh": spec.efa_interfaces_planned > 0,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "mount-lustre.sh": spec.lustre_dns_name is not None,
        "pull-image.sh": True,
    }
    return [name for name, wanted in planned.items() if wanted]


def _unit(name: str, spec: NodeInitSpec, steps: list[str]) -> _NodeFile:
    text = (
        _environment()
        .get_template(f"{spec.cloud}/{name}.service.j2")
        .render(
            bin_dir=BIN_DIR,
            container=CONTAINER_NAME,
            steps=steps,
            timeout_stop_sec=spec.job.shutdown_timeout_sec + STOP_MARGIN_SEC,
        )
    )
    return _NodeFile(f"/etc/systemd/system/{name}.service", "0644", text)


@cache
def _environment() -> Environment:
    # Autoescape writes HTML entities, and nothing here is HTML: bash values go through bash_quote, YAML holds them
    # in literal blocks.
    return Environment(
        loader=PackageLoader("images"),
        autoescape=False,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )


def _source(name: str) -> str:
    """A script as it is on disk: bash's `${#array[@]}` would open a comment in Jinja."""
    environment = _environment()
    assert environment.loader is not None, "set by _environment"
    return environment.loader.get_source(environment, name)[0]
