"""The engine `kubernetes`: submits jobs to an existing cluster, as JobSets in one of Kueue's queues, with kubectl. All
state is in the cluster; no part of Gangway runs there.
"""

import getpass
import os
import secrets
import time
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gangway.components.core.findings import Finding, InputError, nearest_hint
from gangway.components.estimate.regions import Place
from gangway.components.kubernetes.spec import SIZE
from gangway.jobs.base import (
    EngineAwayError,
    JobStatus,
    Phase,
    Room,
    data_source_findings,
    region_findings,
    rendezvous_findings,
    unreadable,
)
from gangway.jobs.job_folder import UnreadableError, raise_errors
from gangway.jobs.kubernetes import kubectl, manifests, objects, queues
from gangway.jobs.kubernetes.fabric import fabric_findings, find_fabric
from gangway.jobs.kubernetes.status import cancelled_at, get_status, lost_starts, remaining_sec, unfit_nodes
from gangway.stacks.config.job_file import JobFile

CLAIM = "gangway-runs"
"""The volume claim for run folders."""
_WORKLOADS = "workloads.kueue.x-k8s.io"
_CLUSTER_QUEUES, _PRIORITIES = "clusterqueues.kueue.x-k8s.io", "workloadpriorityclasses.kueue.x-k8s.io"
_COHORTS = "cohorts.kueue.x-k8s.io"
_FLAVORS, _TOPOLOGIES = "resourceflavors.kueue.x-k8s.io", "topologies.kueue.x-k8s.io"
_LOOKS, _LOOK_SEC = 60, 0.5
_BEGINNING = 1
"""A log offset before every line that differs from the first call's 0."""


class KubernetesEngine:
    """`queue`: a LocalQueue of the namespace; `context`: empty for the kubeconfig's current one."""

    kind = "kubernetes"

    def __init__(self, context: str, namespace: str, queue: str, user: str = "", region: Place | None = None) -> None:
        self._kubectl, self._queue = kubectl.Kubectl(context, namespace), queue
        self._user, self.region = user or own_name(), region
        self.where = f"{context}@{namespace}/{queue}"

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`. InputError: the cluster does not answer, or has no such queue."""
        queue = kubectl.local_queue(self._kubectl, self._queue)
        if job.image is None:
            fix = "image: NAME@sha256:..."
            if job.preset is not None:
                fix += ", of the trainer: gangway dockerfile cuda > Dockerfile has the commands to build and push it"
            yield Finding.error("job.image", "image", "a pod needs an image", fix)
        if job.nodes.min < job.nodes.max:
            yield Finding.warning(
                "job.nodes", "nodes.min", f"ignored here: Kueue admits all {job.nodes.max} nodes or none"
            )
        if not job.resources:
            yield Finding.info(
                "job.resources", "resources", "not given: each node gets 1 CPU, 2 GiB and no accelerator",
                "resources: {cpu: ..., memory: ..., nvidia.com/gpu: ...}",
            )  # fmt: skip
        yield from manifests.output_findings(job)
        yield from data_source_findings(job)
        yield from rendezvous_findings(job, "the job's own pods if the cluster enforces NetworkPolicies, else all pods")
        yield from self._missing_objects(job)
        yield from self._team_findings(job, queue["spec"]["clusterQueue"])
        quota = self._quota(queue)
        yield from fabric_findings(self._kubectl, job, quota)
        if quota is None:
            yield Finding.warning(
                "job.quota", "resources", f"unknown whether {self._queue} can ever run it: you may not read its quota"
            )
            return
        for name, why in queues.over_quota(job, quota):
            yield Finding.error("job.quota", f"resources.{name}", why, "ask for less, or use another queue")

    def _missing_objects(self, job: JobFile) -> Iterable[Finding]:
        if not self._kubectl.has("persistentvolumeclaim", CLAIM):
            yield Finding.error(
                "job.claim", "--on", f"the namespace has no volume claim {CLAIM} for run folders",
                "docs/kubernetes.md has a manifest to apply",
            )  # fmt: skip
        if job.data_dir is not None and not self._kubectl.has("persistentvolumeclaim", manifests.DATA_CLAIM):
            yield Finding.error(
                "job.data-claim", "data_dir",
                f"the namespace has no volume claim {manifests.DATA_CLAIM}, which is mounted there",
                "docs/kubernetes.md says what it is",
            )  # fmt: skip
        name = manifests.priority_class(job.priority)
        if name is not None and not self._kubectl.has(_PRIORITIES, name):
            yield Finding.error(
                "job.priority", "priority", f"the cluster has no WorkloadPriorityClass {name}",
                "priority: normal, or apply the one in docs/kubernetes.md",
            )  # fmt: skip

    def _team_findings(self, job: JobFile, cluster_queue: str) -> Iterable[Finding]:
        """For a team that is not the queue's: it does not change the job's quota."""
        if job.team is None or job.team in (self._kubectl.namespace, self._queue, cluster_queue):
            return
        message = f"{job.team}: only a label, since the job uses the quota of {cluster_queue}"
        with suppress(kubectl.ForbiddenError):
            names = [each["metadata"]["name"] for each in self._kubectl.get(_CLUSTER_QUEUES)]
            message += "; the cluster has no queue of that name" if job.team not in names else ""
            message += f"; existing ones: {', '.join(names)}"
        yield Finding.warning("job.team", "team", message, f"team: {cluster_queue}, or submit it to that team's queue")

    def submit(self, job: JobFile) -> str:
        """See `Engine`."""
        raise_errors((*region_findings(job, self.region), *self.findings(job)))
        sets = self._kubectl.get(objects.SETS, manifests.OURS)
        self._remove_old_jobs(sets)
        taken = [int(objects.get_job_id(each).rpartition("-")[2]) for each in sets if objects.is_job_set(each)]
        number = max(taken, default=0) + 1
        block, fabric = self._block(job, self._queue), find_fabric(self._kubectl, job)
        while True:
            job_id = f"{job.name}-{number}"
            folder = f"{self._kubectl.namespace}/{job_id}-{secrets.token_hex(8)}"
            placing = manifests.Placing(
                self._kubectl.namespace, self._queue, CLAIM, job_id, self._user, folder, block=block, fabric=fabric
            )
            try:
                objects.create_start(self._kubectl, job, placing, manifests.get_variables(job, fabric))
            except kubectl.TakenError:
                number += 1  # another submit took it
            else:
                return job_id

    def _remove_old_jobs(self, sets: Sequence[Any]) -> None:
        now = datetime.now(UTC)
        with suppress(kubectl.ForbiddenError):
            if any(objects.may_be_old(each, now) for each in sets):
                for seen in self._read_jobs(manifests.OURS):
                    objects.clear_old(self._kubectl, seen, self._read_status(seen), now)
            objects.clear_orphans(self._kubectl, sets, now)

    def status(self, job_id: str) -> JobStatus:
        """See `Engine`. Also deactivates a job that runs although it was cancelled."""
        seen = self._read_job(job_id)
        found = self._status(seen)
        if found.phase is Phase.RUNNING:
            with suppress(kubectl.ForbiddenError):  # for users with read access
                self._cancel_late_start(seen)
        return found

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`: jobs of all queues of the namespace. InputError: there is no such queue."""
        with suppress(kubectl.ForbiddenError):
            kubectl.local_queue(self._kubectl, self._queue)
        return [self._read_status(each) for each in self._read_jobs(manifests.OURS)]

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """See `Engine`. Logs of deleted pods, those of earlier starts, are lost; the first call says so. `offset`: ns
        since 1970. EngineAwayError: the log of a running job could not be read completely.
        """
        seen = self._read_job(job_id)
        if not offset and (gone := self._lost_log_note(seen)):
            text, end = self._log(seen, job_id, _BEGINNING)
            return f"{gone}\n{text}", end
        return self._log(seen, job_id, offset)

    def _lost_log_note(self, seen: objects.JobObjects) -> str:
        gone, starts = lost_starts(seen)
        if not gone:
            return ""
        what = "its log" if gone == starts else f"the log of {gone} of its {starts} starts"
        label, folder = (
            f"{manifests.JOB_LABEL}={objects.get_job_id(seen.last)}",
            objects.get_annotations(seen.last).get(manifests.RUN_ANNOTATION, ""),
        )
        return (
            f"gangway: {what} was deleted with its pods; the cluster's log collection may have it, under pods "
            f"labelled {label} in {self._kubectl.namespace}; its files are in {folder} of the volume claim {CLAIM}"
        )

    def _log(self, seen: objects.JobObjects, job_id: str, offset: int) -> tuple[str, int]:
        runs = any(each["status"].get("phase") == "Running" for each in seen.pods)
        if not any(each["status"].get("containerStatuses") for each in seen.pods):
            return "", offset
        output = self._kubectl.logs(
            f"--selector={manifests.JOB_LABEL}={job_id}", "--timestamps", "--prefix", "--tail=-1", "--ignore-errors",
            "--max-log-requests=1000", *kubectl.since_args(offset),
        )  # fmt: skip
        if runs and (why := kubectl.find_log_error(output)):
            raise EngineAwayError("job", f"kubectl logs: {why}", value=job_id, fix="try again, or check its nodes")
        return kubectl.merge_logs(output, offset, time.time_ns() if runs else None)

    def cancel(self, job_id: str) -> None:
        """See `Engine`. Kueue evicts it, with SIGTERM and its grace period."""
        for _ in range(_LOOKS):
            seen = self._read_job(job_id)
            if self._status(seen).phase.is_over:
                return
            if manifests.CANCELLED_ANNOTATION not in objects.get_annotations(seen.last):
                self._mark_cancelled(seen.last)
                continue  # look again for starts made meanwhile; later ones see the annotation
            if self._deactivate(seen):
                return
            time.sleep(_LOOK_SEC)
        raise InputError("job", "Kueue has made no workload for it", value=job_id, fix="check Kueue's log")

    def _mark_cancelled(self, job_set: kubectl.Found) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._kubectl.patch(
            objects.SETS,
            job_set["metadata"]["name"],
            {"metadata": {"annotations": {manifests.CANCELLED_ANNOTATION: now}}},
        )

    def _deactivate(self, seen: objects.JobObjects) -> bool:
        if seen.workload is None:
            return False
        if seen.workload["spec"].get("active", True):
            self._kubectl.patch(_WORKLOADS, seen.workload["metadata"]["name"], {"spec": {"active": False}})
        return True

    def _cancel_late_start(self, seen: objects.JobObjects) -> bool:
        """Whether it was cancelled; one that started anyway, because its starter was cut off, is deactivated."""
        if cancelled_at(seen) is None:
            return False
        if manifests.CANCELLED_ANNOTATION not in objects.get_annotations(seen.last):
            self._mark_cancelled(seen.last)
        self._deactivate(seen)
        return True

    def room(self, job: JobFile) -> Room:
        """See `Engine`."""
        queue = kubectl.local_queue(self._kubectl, self._queue)
        waiting = queue.get("status", {}).get("pendingWorkloads", 0)
        if (policy := queue["spec"].get("stopPolicy", "None")) != "None":
            return Room(False, f"the queue is stopped: {policy}")
        if (stopped := objects.condition(queue, "Active", status="False")) is not None:
            return Room(False, f"{stopped.get('reason', '')}: {stopped.get('message', '')}")
        quota = self._quota(queue)
        if quota is None:
            return Room(False, "you may not read its quota")
        lacks = queues.missing_quota(job, quota)
        free = "quota is free" if not lacks else "; ".join(lacks)
        if quota.in_cohort:
            free += ", which its cohort may lend it" if lacks else ", but its cohort may have borrowed some"
        return Room(not waiting and not lacks, f"{free}, {waiting} jobs waiting")

    def ensure_begun(self, job_id: str) -> None:
        """See `Engine`: after an unfit node, restarts the job without that node, unless it was cancelled."""
        seen = self._read_job(job_id)
        nodes, status = unfit_nodes(seen), self._status(seen)
        if status.phase.is_over or self._cancel_late_start(seen) or status.phase is not Phase.WAITING or not nodes:
            return
        last, job, queue = seen.last, objects.get_file(seen.last), self._get_queue(seen.last)
        meta = last["metadata"]
        placing = manifests.Placing(
            self._kubectl.namespace, queue, CLAIM, job_id, objects.get_annotation(last, manifests.USER_ANNOTATION),
            objects.get_annotation(last, manifests.RUN_ANNOTATION), objects.get_excluded_nodes(last),
            objects.get_start(last), None, self._block(job, queue), find_fabric(self._kubectl, job),
        )  # fmt: skip
        following = placing.without(nodes, remaining_sec(seen))
        data = self._kubectl.get("secret", meta["name"]).get("data", {})
        variables = {name: b64decode(value).decode() for name, value in data.items()}
        try:
            objects.create_start(self._kubectl, job, following, variables)
        except kubectl.TakenError:  # another process started it, or was interrupted doing so
            objects.clear_stale(self._kubectl, following.name)
        if cancelled_at(self._read_job(job_id)) is not None:
            self.cancel(job_id)

    def _get_queue(self, job_set: kubectl.Found) -> str:
        """May differ from this engine's queue."""
        return str(job_set["metadata"]["labels"].get(manifests.QUEUE_LABEL, self._queue))

    def _read_jobs(self, *words: str) -> list[objects.JobObjects]:
        sets = [each for each in self._kubectl.get(objects.SETS, *words) if objects.is_job_set(each)]
        if not sets:
            return []
        workloads, jobs, pods = (self._kubectl.get(kind, *more) for kind, more in (
            (_WORKLOADS, ()), ("jobs.batch", words), ("pods", words)
        ))  # fmt: skip
        return objects.group_by_job(sets, workloads, jobs, pods)

    def _read_job(self, job_id: str) -> objects.JobObjects:
        if found := self._read_jobs(f"--selector={manifests.JOB_LABEL}={job_id}"):
            return found[0]
        with suppress(kubectl.ForbiddenError):
            kubectl.local_queue(self._kubectl, self._queue)  # no such queue explains it better
        ids = [
            objects.get_job_id(each)
            for each in self._kubectl.get(objects.SETS, manifests.OURS)
            if objects.is_job_set(each)
        ]
        raise InputError(
            "job", f"{self.where} has no such job", value=job_id, allowed=", ".join(ids[-20:]) or "no jobs yet",
            fix=nearest_hint(job_id, ids) if ids else "submit one: gangway job submit FILE",
        )  # fmt: skip

    def _read_status(self, seen: objects.JobObjects) -> JobStatus:
        try:
            return self._status(seen)
        except UnreadableError as error:
            job_id = objects.get_job_id(seen.last)
            return unreadable(job_id, job_id.rpartition("-")[0], error)

    def _status(self, seen: objects.JobObjects) -> JobStatus:
        return get_status(seen, self._other_places(seen))

    def _other_places(self, seen: objects.JobObjects) -> int | None:
        if not (unfit := unfit_nodes(seen)):
            return 0
        last = seen.last
        try:
            queue = self._cluster_queue(self._kubectl.get(kubectl.QUEUES, self._get_queue(last)))
            flavors = {name: self._kubectl.get(_FLAVORS, name) for name in queues.flavor_names(queue)}
            nodes = self._kubectl.get("nodes")
        except (kubectl.ForbiddenError, kubectl.MissingError):
            return None
        return queues.count_places(
            objects.get_file(last), queues.get_quota(queue), flavors, nodes, {*objects.get_excluded_nodes(last), *unfit}
        )

    def _cluster_queue(self, of: Any) -> Any:
        return self._kubectl.get(_CLUSTER_QUEUES, of["spec"]["clusterQueue"])

    def _quota(self, of: Any) -> queues.Quota | None:
        try:
            queue = self._cluster_queue(of)
            return queues.get_quota(queue, self._cohort(queue))
        except kubectl.ForbiddenError:
            return None

    def _cohort(self, queue: kubectl.Found) -> Mapping[tuple[str, str], Decimal] | None:
        """What the queue's cohort has; None if this user may not read it, or if it can borrow from a parent."""
        if not (name := queue["spec"].get("cohortName")) or SIZE in objects.get_annotations(queue):
            return None
        try:
            members = [each for each in self._kubectl.get(_CLUSTER_QUEUES) if each["spec"].get("cohortName") == name]
            try:
                members.append(self._kubectl.get(_COHORTS, name))
            except kubectl.MissingError:
                return queues.cohort_total(members)
        except kubectl.ForbiddenError:
            return None
        return None if members[-1]["spec"].get("parentName") else queues.cohort_total(members)

    def _block(self, job: JobFile, queue_name: str) -> str | None:
        if job.nodes.max == 1:
            return None
        try:
            queue = self._cluster_queue(kubectl.local_queue(self._kubectl, queue_name))
            flavors = [self._kubectl.get(_FLAVORS, name) for name in queues.flavor_names(queue)]
            names = [each["spec"].get("topologyName") for each in flavors]
            return queues.narrowest_block(
                [None if name is None else self._kubectl.get(_TOPOLOGIES, name) for name in names]
            )
        except (kubectl.ForbiddenError, kubectl.MissingError):
            return None


def own_name() -> str:
    """With a login shared by sudo, the user who ran sudo; a number without a name, as in many containers."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the second since Python 3.13
        name = str(os.getuid())
    came_from = os.environ.get("SUDO_USER", "")
    return name if came_from in ("", "root") or name == "root" else came_from
