"""The script that provisions a machine image, made of the scripts that nodes run at boot. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from gangway.images import render, shell
from gangway.images.slurm.conf import NODE_PACKAGES
from gangway.images.specs import EXPORTER_IMAGES, pinned_image

END_OF_INSTALL = "# A machine image has all above; the rest is of each boot.\n"
"""The line of a node's script after which it needs the node itself."""
_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType({"azure": ("azure/api.py",), "gcp": ("gcp/api.py",)})
"""What logs a machine of a cloud in to its registry, where no script does."""


@dataclass(frozen=True, kw_only=True)
class MachineImageSpec:
    """What a machine image has beyond its base. `docker`: it is installed, with NVIDIA's toolkit if there are `gpus`;
    `container`: the job's, by digest; empty for none; `registry`: where it is; `exporters`: the scrape jobs whose
    containers it has; `settings`: variables of the cloud's scripts.
    """

    cloud: str
    docker: bool = False
    gpus: int = 0
    lustre: bool = False
    slurm: bool = False
    container: str = ""
    registry: str = ""
    exporters: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> list[str]:
        """The scripts that install software, in the order of a boot."""
        planned = {
            "install-docker.sh": self.docker,
            "mount-lustre.sh": self.lustre,
            "slurm-install.sh": self.slurm,
            "pull-image.sh": self.container != "",
        }
        return render.select_enabled(planned)


def render_machine_image(spec: MachineImageSpec) -> str:
    """The bash script. It fails if a step fails, and leaves neither its scripts nor a login in the image."""
    helpers = ["common.sh", "cloud.sh", *(["slurm-cloud.sh"] if spec.slurm else [])]
    files = [
        render.NodeFile("node.env", "0600", shell.bash_assignments(_settings(spec))),
        render.NO_UPGRADES._replace(path="no-upgrades"),
        *_modules(spec.cloud),
        *(_install_part(spec.cloud, name) for name in [*helpers, *spec.steps]),
    ]
    render.check_heredoc(files, "GANGWAY_END_OF_FILE")
    containers = [pinned_image(EXPORTER_IMAGES[job]) for job in spec.exporters]
    template = render.template_environment().get_template("machine-image.sh.j2")
    return template.render(files=files, steps=spec.steps, containers=containers, no_upgrades=render.NO_UPGRADES.path)


def _install_part(cloud: str, name: str) -> render.NodeFile:
    """A script up to where it needs the node."""
    text = render.script_text(cloud, name).partition(END_OF_INSTALL)[0]
    return render.NodeFile(f"bin/{name}", "0755", render.without_comments(text))


def _modules(cloud: str) -> list[render.NodeFile]:
    names = _MODULES.get(cloud, ())
    files = [render.PACKAGE_FILE, *(render.python_file(name) for name in ("__init__.py", "web.py", *names))]
    above = PurePosixPath(render.LIB_DIR).parent
    return [file._replace(path=str(PurePosixPath(file.path).relative_to(above))) for file in files if names]


def _settings(spec: MachineImageSpec) -> dict[str, str]:
    """Variables of the scripts. On a head, a step that gives up fails and replaces no machine."""
    nowhere = "/run/gangway-image"
    return {
        "GPUS_PLANNED": str(spec.gpus),
        "IMAGE": spec.container,
        "IMAGE_REGISTRY": spec.registry,
        "JOB_KEY": "image",
        "LOG_GROUP": "",
        "LUSTRE_DNS_NAME": "",
        "LUSTRE_MOUNT_NAME": "",
        "LUSTRE_MOUNT_POINT": nowhere,
        "MOUNT_POINT": nowhere,
        "ROLE": "head",
        "SLURM_PACKAGES": " ".join(NODE_PACKAGES) if spec.slurm else "",
        **spec.settings,
    }
