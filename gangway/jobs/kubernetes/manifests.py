"""Translates a job file for Kubernetes: a JobSet in one of Kueue's queues, and what its pods need; pure.

A failed pod fails its Job, whose message names the exit code. The JobSet's failure policy reads it there: 2, 3, 5 and 6
end the job; 4 ends the JobSet until the job is restarted without that node; 75 and disruptions restart it; other codes
restart it up to `max_restarts` times; all together at most `restart_limit` times. The code is that of the first pod to
end: on several nodes a pod delays a plain failure (own-job.sh), since it may follow from the loss of a peer.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gangway.components.core.findings import Finding
from gangway.components.kubernetes.spec import HOST, INFINIBAND, RUNG_LABEL, TPU
from gangway.images.render import TEMPLATES
from gangway.jobs.base import restart_limit
from gangway.jobs.kubernetes.fabric import Fabric
from gangway.jobs.kubernetes.queues import resources_of
from gangway.jobs.node_command import (
    TRAIN_FILE,
    Meeting,
    Place,
    needs_member_key,
    node_argv,
    node_variables,
    own_job_script,
    train_document,
)
from gangway.stacks.config.job_file import JobFile, Priority
from gangway.stacks.config.own_command import RUN_DIR, outputs_in_mounts
from gangway.trainer.core.errors import (
    EXIT_BAD_INPUT,
    EXIT_ENDED_FOR_ALL,
    EXIT_HOURS_OVER,
    EXIT_INTERRUPTED,
    EXIT_UNFIT,
    EXIT_UNHEALTHY,
)

Manifest = dict[str, Any]

JOB_SET_VERSION = "jobset.x-k8s.io/v1alpha2"
JOB_LABEL = "gangway.dev/job"
"""The job's id, on all its objects."""
OURS = "--selector=app.kubernetes.io/managed-by=gangway"
"""kubectl's selector for the objects of all jobs."""
START_LABEL = "gangway.dev/start"
"""On a JobSet: the 1-based number of the start; above 1 after an unfit node."""
FILE_ANNOTATION, USER_ANNOTATION, CANCELLED_ANNOTATION = "gangway.dev/file", "gangway.dev/user", "gangway.dev/cancelled"
EXCLUDED_ANNOTATION = "gangway.dev/excluded-nodes"
RUN_ANNOTATION = "gangway.dev/run-folder"
CONTAINER, GROUP = "node", "node"
DATA_CLAIM = "gangway-data"
"""The volume claim for data sets of presets."""
_TEAM_LABEL = "gangway.dev/team"
QUEUE_LABEL, _PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
_NEAR_ANNOTATION = "kueue.x-k8s.io/podset-preferred-topology"
"""On pods; if no block of this kind has room, they spread over one of the next wider kind, and so on."""
HOURS_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
"""On a JobSet: seconds after which Kueue ends it, including the wait for nodes."""
HOURS_ANNOTATION = "gangway.dev/max-sec"
"""On a JobSet: seconds that its pods may run. They end themselves after that (hours.sh)."""
PATIENCE_SEC = 4 * 3600
"""Beyond its hours, for nodes to come, over all tries of a JobSet."""
_MOUNTS = "/mnt/gangway"
_RUN_DIR, _SCRIPTS_DIR, _MEMBER_DIR = f"{_MOUNTS}/run", f"{_MOUNTS}/scripts", f"{_MOUNTS}/member"
MEMBER_KEY = "member.pem"
"""The nodes' key in a job's Secret and in `_MEMBER_DIR`; not in the environment."""
_OWN_JOB, _NOTICES = "own-job.sh", "/tmp/gangway-notices.jsonl"
_HOURS, _USED = "hours.sh", f"{_RUN_DIR}/.gangway-used-sec"
_PLACE = Place(_RUN_DIR, f"{_SCRIPTS_DIR}/{TRAIN_FILE}", f"{_SCRIPTS_DIR}/{_OWN_JOB}", "python")
_PORT = 29400
_HOLD_BACK_SEC = 20
"""By then it is known why a lost pod ended: its own code, or an eviction."""
_RESTARTS = "GANGWAY_RESTARTS"
"""Variable of a pod: restarts of its JobSet, for any reason."""
_RESTARTS_LABEL = "jobset.sigs.k8s.io/restart-attempt"
_RESTART_CHECK = """if [ "${%(name)s:-0}" -gt %(most)d ]; then
    echo "gangway: restarted %(most)d times, the limit: something keeps interrupting it" >&2
    exit %(code)d
fi
"""
_RANK_EXPORT = 'export PET_NODE_RANK="$JOB_COMPLETION_INDEX"\n'
"""For a pod's shell: torchrun's argument by which the first pod serves the store."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_REACH_LABELS: Mapping[str, str] = MappingProxyType({INFINIBAND: RUNG_LABEL, TPU: "cloud.google.com/gke-nodepool"})
"""By resource, the node label that must be equal for nodes to reach each other with it."""
_JOINS = """gangway_looks=0
trap 'exit %(code)d' TERM
until [ -r %(script)s ]; do
    gangway_looks=$((gangway_looks + 1))
    if [ "$gangway_looks" -gt 300 ]; then
        echo "gangway: no %(script)s after ten minutes, so the plug-in for the nodes' network is missing" >&2
        exit 1
    fi
    sleep 2
done
trap - TERM
gangway_env=$(export -p)
. %(script)s
eval "$gangway_env"
unset gangway_env gangway_looks
"""
"""For a pod's bash: the script sets variables that are not set. Its exit code is ignored. A new node gets the script
from a separate pod.
"""
_USER = 1000
KEPT_SEC = 7 * 24 * 3600
"""How long an ended job remains visible."""
_TMP_SIZE = "20Gi"
"""Of /tmp. Exceeding it is a failure and counts; an eviction from a full node would repeat up to `restart_limit` times.
"""


@dataclass(frozen=True)
class Placing:
    """Where a job goes.

    Attributes:
        run_folder: of this job in it, `NAMESPACE/NAME`.
        start: 1-based number of its JobSet.
        max_sec: remaining seconds of its hours; None for all of them.
        fabric: for the network between GPUs; None for TCP, or if pods need nothing.
        block: node label; all nodes come from one block of it if there is room. None if the queue has none.
    """

    namespace: str
    queue: str
    claim: str
    job_id: str
    user: str
    run_folder: str
    excluded: tuple[str, ...] = ()
    start: int = 1
    max_sec: int | None = None
    block: str | None = None
    fabric: Fabric | None = None

    @property
    def name(self) -> str:
        """Of the JobSet and all objects of this start."""
        return self.job_id if self.start == 1 else f"{self.job_id}-s{self.start}"

    def without(self, nodes: Iterable[str], max_sec: int) -> "Placing":
        """For the next start."""
        excluded = tuple(sorted({*self.excluded, *nodes}))
        return replace(self, excluded=excluded, start=self.start + 1, max_sec=max_sec)


def priority_class(priority: Priority) -> str | None:
    """Kueue's WorkloadPriorityClass; None for normal priority."""
    return None if priority is Priority.NORMAL else f"gangway-{priority}"


def output_findings(job: JobFile) -> Iterable[Finding]:
    """Outputs that collide with a pod's other mounts."""
    for output, mount in outputs_in_mounts(job.outputs, [_MOUNTS]):
        yield Finding.error(
            "job.outputs",
            "outputs",
            f"{output}: a pod has its run folder in {mount}",
            f"write to ${RUN_DIR}, or to another folder such as /work/results",
        )


def get_variables(job: JobFile, fabric: Fabric | None = None) -> Mapping[str, str]:
    """For its pods; may contain secrets."""
    joins = {} if fabric is None else fabric.env
    held = {"GANGWAY_HOLD_BACK_SEC": str(_HOLD_BACK_SEC)} if job.nodes.max > 1 and job.preset is None else {}
    # The image's home may be read-only.
    return {"HOME": "/tmp", **joins, **node_variables(job, _PLACE, _NOTICES), **held}


def support_manifests(job: JobFile, placing: Placing, secrets: Mapping[str, str]) -> tuple[Manifest, ...]:
    """Objects made before the JobSet: the pods' files, the job's variables and key, and who may connect to its pods."""
    document = train_document(job, _PLACE)
    training = {} if document is None else {TRAIN_FILE: document}
    return (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _meta(placing, placing.name),
            "immutable": True,
            "data": {_OWN_JOB: own_job_script().read_text(), _HOURS: hours_script().read_text(), **training},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _meta(placing, placing.name),
            "immutable": True,
            "type": "Opaque",
            "stringData": dict(secrets),
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _meta(placing, placing.name),
            "spec": {
                "podSelector": {"matchLabels": {JOB_LABEL: placing.job_id}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {JOB_LABEL: placing.job_id}}}]}],
            },
        },
    )


def hours_script() -> Path:
    """Path on this machine of the script that ends a pod's program when the job's hours are over."""
    return TEMPLATES / "job" / _HOURS


def job_set(job: JobFile, placing: Placing) -> Manifest:
    """The JobSet. Its annotation holds the job file without `env`, which is in a Secret."""
    max_sec = placing.max_sec or _max_sec(job)
    labels = {
        **_labels(placing),
        START_LABEL: str(placing.start),
        QUEUE_LABEL: placing.queue,
        HOURS_LABEL: str(max_sec + PATIENCE_SEC),
    }
    if (name := priority_class(job.priority)) is not None:
        labels[_PRIORITY_LABEL] = name
    if job.team is not None:
        labels[_TEAM_LABEL] = job.team
    annotations = {
        FILE_ANNOTATION: job.model_dump_json(exclude_unset=True, exclude={"env"}),
        USER_ANNOTATION: placing.user,
        RUN_ANNOTATION: placing.run_folder,
        EXCLUDED_ANNOTATION: ",".join(placing.excluded),
        HOURS_ANNOTATION: str(max_sec),
    }
    return {
        "apiVersion": JOB_SET_VERSION,
        "kind": "JobSet",
        "metadata": {**_meta(placing, placing.name), "labels": labels, "annotations": annotations},
        "spec": {
            "suspend": True,  # until Kueue admits it
            "ttlSecondsAfterFinished": KEPT_SEC,
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": _failure_policy(job),
            "replicatedJobs": [
                {
                    "name": GROUP,
                    "replicas": 1,
                    "template": {"metadata": {"labels": _labels(placing)}, "spec": _job(job, placing)},
                }
            ],
        },
    }


def _max_sec(job: JobFile) -> int:
    return math.ceil(job.max_hours * 3600)


def _failure_policy(job: JobFile) -> Manifest:
    over = (EXIT_BAD_INPUT, EXIT_UNHEALTHY, EXIT_ENDED_FOR_ALL, EXIT_HOURS_OVER)
    return {
        "maxRestarts": job.max_restarts,
        # All pods end before the next start: two of a kind would corrupt the run folder.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {"name": "over", "action": "FailJobSet", "onJobFailureMessagePatterns": [_with_code(*over)]},
            {"name": "unfit", "action": "FailJobSet", "onJobFailureMessagePatterns": [_with_code(EXIT_UNFIT)]},
            {
                "name": "interrupted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureMessagePatterns": [_with_code(EXIT_INTERRUPTED), "has condition DisruptionTarget"],
            },
        ],
    }


def _with_code(*codes: int) -> str:
    """As worded by the Job controller."""
    return f"failed with exit code ({'|'.join(str(code) for code in codes)}) "


def _job(job: JobFile, placing: Placing) -> Manifest:
    annotations = {} if placing.fabric is None else dict(placing.fabric.annotations)
    if placing.block is not None:
        annotations[_NEAR_ANNOTATION] = placing.block
    noted = {"annotations": annotations} if annotations else {}
    return {
        "parallelism": job.nodes.max,
        "completions": job.nodes.max,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]},
                },
            ]
        },
        "template": {"metadata": {"labels": _labels(placing), **noted}, "spec": _pod(job, placing)},
    }


def _pod(job: JobFile, placing: Placing) -> Manifest:
    asked = dict(resources_of(job))
    container: Manifest = {
        "name": CONTAINER,
        "image": job.image,
        "command": [_literal(word) for word in _words(job, placing)],
        "env": [{"name": _RESTARTS, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_RESTARTS_LABEL}']"}}}],
        "resources": {"requests": asked, "limits": asked},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "runs", "mountPath": _RUN_DIR, "subPath": placing.run_folder},
            {"name": "scripts", "mountPath": _SCRIPTS_DIR, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
            *_outputs(job, placing),
        ],
    }
    if job.workdir is not None:
        container["workingDir"] = job.workdir
    if job.data_dir is not None:
        container["volumeMounts"].append({"name": "data", "mountPath": job.data_dir, "readOnly": True})
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": job.grace_sec,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": placing.claim}},
            {"name": "scripts", "configMap": {"name": placing.name}},
            {"name": "tmp", "emptyDir": {"sizeLimit": asked.get("ephemeral-storage", _TMP_SIZE)}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if job.data_dir is not None:
        read = {"claimName": DATA_CLAIM, "readOnly": True}
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": read})
    _add_secrets(spec, job, placing)
    if placing.fabric is not None:
        _mount_fabric(spec, placing.fabric)
    if affinity := _affinity(job, placing):
        spec["affinity"] = affinity
    return spec


def _add_secrets(pod: Manifest, job: JobFile, placing: Placing) -> None:
    """Adds the job's variables; its key only as a file."""
    (container,) = pod["containers"]
    if not needs_member_key(job):
        container["envFrom"] = [{"secretRef": {"name": placing.name}}]
        return
    # envFrom would make the key a variable too; a preset's variables are not secret.
    own = get_variables(job, placing.fabric)
    container["env"] += [{"name": name, "value": _literal(value)} for name, value in own.items()]
    container["volumeMounts"].append({"name": "member", "mountPath": _MEMBER_DIR, "readOnly": True})
    # The kubelet adds read access for fsGroup, the pod's group; others have none.
    file = {"secretName": placing.name, "items": [{"key": MEMBER_KEY, "path": MEMBER_KEY}], "defaultMode": 0o400}
    pod["volumes"].append({"name": "member", "secret": file})


def _mount_fabric(pod: Manifest, fabric: Fabric) -> None:
    if fabric.mount is None:
        return
    (container,) = pod["containers"]
    container["volumeMounts"].append({"name": "fabric", "mountPath": fabric.mount.path, "readOnly": True})
    claim = {"claimName": fabric.mount.claim, "readOnly": True}
    pod["volumes"].append({"name": "fabric", "persistentVolumeClaim": claim})


def _affinity(job: JobFile, placing: Placing) -> Manifest:
    """Excludes unfit nodes; InfiniBand does not cross rungs, and TPU chips belong to one slice, a node pool."""
    found: Manifest = {}
    if placing.excluded:
        away = {"key": HOST, "operator": "NotIn", "values": list(placing.excluded)}
        needed = {"nodeSelectorTerms": [{"matchExpressions": [away]}]}
        found["nodeAffinity"] = {_REQUIRED: needed}
    alike = [label for resource, label in _REACH_LABELS.items() if resource in resources_of(job)]
    if job.nodes.max > 1 and alike:
        own = {"matchLabels": {JOB_LABEL: placing.job_id}}
        found["podAffinity"] = {_REQUIRED: [{"labelSelector": own, "topologyKey": label} for label in alike]}
    return found


def _outputs(job: JobFile, placing: Placing) -> Iterable[Manifest]:
    """Mounts for outputs; the kubelet makes their folders, as for the run folder.

    Each is a separate folder next to the run folder: inside a mounted one a pod could replace another by a link, which
    the kubelet would follow anywhere in the volume.
    """
    for output in job.outputs:
        beside = f"{placing.run_folder}.outputs{output.replace('/', '+')}"
        yield {"name": "runs", "mountPath": output, "subPath": beside}


def _words(job: JobFile, placing: Placing) -> list[str]:
    goes_on = _RESTART_CHECK % {"name": _RESTARTS, "most": restart_limit(job), "code": EXIT_ENDED_FOR_ALL}
    hours = ["/bin/sh", f"{_SCRIPTS_DIR}/{_HOURS}", str(_max_sec(job)), str(job.grace_sec), _USED]
    if job.nodes.max == 1:
        return ["/bin/sh", "-c", f'{goes_on}exec "$@"', "node", *hours, *node_argv(job, _PLACE)]
    script = None if placing.fabric is None else placing.fabric.script
    shell, joins = (
        ("/bin/sh", "") if script is None else ("/bin/bash", _JOINS % {"script": script, "code": EXIT_INTERRUPTED})
    )
    first = f"{placing.name}-{GROUP}-0-0.{placing.name}"
    meeting = Meeting(first, _PORT, placing.name, job.nodes.max, f"{_MEMBER_DIR}/{MEMBER_KEY}")
    meets = _RANK_EXPORT if job.preset is not None or job.processes_per_node is not None else ""
    return [shell, "-c", f'{goes_on}{meets}{joins}exec "$@"', "node", *hours, *node_argv(job, _PLACE, meeting)]


def _literal(word: str) -> str:
    """Escapes $ for a container's command, where $(NAME) is expanded."""
    return word.replace("$", "$$")


def _labels(placing: Placing) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "gangway", JOB_LABEL: placing.job_id}


def _meta(placing: Placing, name: str) -> Manifest:
    return {"name": name, "namespace": placing.namespace, "labels": _labels(placing)}
