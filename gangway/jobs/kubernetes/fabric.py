"""What joins a cluster's nodes for their GPUs: a ConfigMap of a namespace says what pods take to use it, and the pods
of a job on several whole nodes get that.
"""

from typing import Annotated

from pydantic import Field, ValidationError

from components.core.fields import PositiveWhole
from components.core.findings import InputError
from components.core.first_error import first_wrong
from components.kubernetes.spec import FABRIC, FABRIC_KEY, GPU
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Kubectl, MissingError
from stacks.config.job_file import JobFile
from stacks.config.section import Section

_Path = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+)+$")]


class Mount(Section):
    """A volume claim of the namespace, to be read.

    Attributes:
        claim: its name.
        path: where pods have it.
    """

    claim: str
    path: _Path


class Fabric(Section):
    """Of a namespace's pods.

    Attributes:
        gpus: of a whole node; pods that ask for fewer may share one, and get nothing of this.
        needs: resources that pods have to ask for besides; without them they get nothing of this either.
        annotations: of the pods, by which they are given interfaces.
        env: of the pods; what a job file says of the same name comes before it.
        script: that bash reads before the command, for variables that are not set by then; empty for none.
        mount: where the plug-in is; None for none.
    """

    gpus: PositiveWhole
    needs: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default={})
    env: dict[str, str] = Field(default={})
    script: _Path | None = None
    mount: Mount | None = None

    def is_for(self, job: JobFile) -> bool:
        """Whether its pods get this: those of several whole nodes, with the adapters."""
        has_needs = all(job.resources.get(name, "0") != "0" for name in self.needs)
        return job.nodes.max > 1 and job.resources.get(GPU) == str(self.gpus) and has_needs


def find_fabric(kubectl: Kubectl, job: JobFile) -> Fabric | None:
    """What the job's pods get; None where the namespace has nothing to say of it, or not of such a job, or may not be
    read, of which `fabric_findings` warns. InputError: as `read_fabric`.
    """
    if job.nodes.max < 2:
        return None
    try:
        fabric = read_fabric(kubectl)
    except ForbiddenError:
        return None
    return fabric if fabric is not None and fabric.is_for(job) else None


def read_fabric(kubectl: Kubectl) -> Fabric | None:
    """What the namespace says; None where it says nothing. ForbiddenError: this user may not read it. InputError: it
    says something else.
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
            allowed="what this release of Gangway has written there",
            fix="run `pulumi up` with this release, which writes it anew",
        ) from None  # fmt: skip
