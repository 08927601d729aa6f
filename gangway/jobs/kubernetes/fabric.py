"""The network between GPUs of a cluster's nodes: a ConfigMap of the namespace defines what pods need to use it. Jobs on
several whole nodes get it.
"""

from typing import Annotated

from pydantic import Field, ValidationError

from gangway.components.core.fields import PositiveWhole
from gangway.components.core.findings import InputError
from gangway.components.core.first_error import first_wrong
from gangway.components.kubernetes.spec import FABRIC, FABRIC_KEY, GPU
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Kubectl, MissingError
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.section import Section

_Path = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+)+$")]


class Mount(Section):
    """A read-only volume claim of the namespace.

    Attributes:
        claim: its name.
        path: in the pods.
    """

    claim: str
    path: _Path


class Fabric(Section):
    """What a namespace's pods need.

    Attributes:
        gpus: of a whole node; pods with fewer may share a node and get nothing of this.
        needs: other resources that pods must request; without them they get nothing of this.
        annotations: give the pods their interfaces.
        env: of the pods; a job file's values take precedence.
        script: sourced by bash before the command, for variables not yet set; None for none.
        mount: of the plug-in; None for none.
    """

    gpus: PositiveWhole
    needs: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default={})
    env: dict[str, str] = Field(default={})
    script: _Path | None = None
    mount: Mount | None = None

    def is_for(self, job: JobFile) -> bool:
        """Whether its pods get this: several whole nodes that request the adapters."""
        has_needs = all(job.resources.get(name, "0") != "0" for name in self.needs)
        return job.nodes.max > 1 and job.resources.get(GPU) == str(self.gpus) and has_needs


def find_fabric(kubectl: Kubectl, job: JobFile) -> Fabric | None:
    """For the job's pods; None if the namespace defines nothing for such a job, or may not be read (`fabric_findings`
    warns). InputError: as `read_fabric`.
    """
    if job.nodes.max < 2:
        return None
    try:
        fabric = read_fabric(kubectl)
    except ForbiddenError:
        return None
    return fabric if fabric is not None and fabric.is_for(job) else None


def read_fabric(kubectl: Kubectl) -> Fabric | None:
    """The namespace's definition; None if there is none. ForbiddenError: this user may not read it. InputError: it is
    invalid.
    """
    try:
        found = kubectl.get("configmap", FABRIC).get("data", {})
    except MissingError:
        return None
    try:
        return Fabric.model_validate_json(found.get(FABRIC_KEY, ""))
    except ValidationError as error:
        wrong = first_wrong(error)
        raise InputError(
            wrong.within(f"configmap {FABRIC} of {kubectl.namespace}: data.{FABRIC_KEY}"), wrong.what,
            allowed="what this release of Gangway writes there",
            fix="run `pulumi up` with this release",
        ) from None  # fmt: skip
