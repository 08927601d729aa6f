"""TpuReconciler: a workflow (`reconcile_slices.yaml`) that recreates preempted TPU slices until their job ends."""

import json
from pathlib import Path
from typing import NotRequired, TypedDict
from urllib.parse import quote

import pulumi
from pulumi_gcp import cloudscheduler, serviceaccount, storage, workflows

from gangway.components.core.outputs import after, register_outputs
from gangway.components.gcp.identity import DATA_READER, RUN_WRITER, account_id, declare_workflow, grant_roles

PAUSES_SEC = (0, 300, 600, 1200, 2400, 3600, 3600, 3600)
"""Since the latest re-creation within WINDOW_SEC; then slices are given up: an attempt costs a boot without a step."""
WINDOW_SEC = 6 * 3600
PERIOD_MINUTES = 5
STORAGE_URL = "https://storage.googleapis.com"
STATE_OBJECT = "reconciled.json"
# Its account deletes and creates queued resources, is invoked by the schedule, and logs its errors.
ROLES = ("roles/tpu.admin", "roles/workflows.invoker", "roles/logging.logWriter")


def reconcile_source() -> str:
    """The workflow's source."""
    return Path(__file__).with_name("reconcile_slices.yaml").read_text("utf-8")


class TpuReconcilerArgs(TypedDict):
    """Inputs of TpuReconciler.

    `queued_resource` is `projects/P/locations/ZONE/queuedResources/ID`, `request_object` the object in
    `files_bucket_name` with its body, `ended_uri` (`gs://BUCKET/KEY`) the marker in the run bucket of an ended job.
    `service_account` is the slices' own, which the workflow must be allowed to act as. `log_name` is the full name of
    the stack's log.
    """

    project: pulumi.Input[str]
    region: str
    zone: str
    stack: str
    queued_resource: pulumi.Input[str]
    request_object: pulumi.Input[str]
    files_bucket_name: pulumi.Input[str]
    run_bucket_name: pulumi.Input[str]
    ended_uri: pulumi.Input[str]
    service_account: pulumi.Input[str]
    log_name: pulumi.Input[str]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def object_url(bucket: str, key: str) -> str:
    """Cloud Storage's URL of an object's metadata; with `?alt=media` of its content.

    >>> object_url("runs", "demo/gan/ended-1")
    'https://storage.googleapis.com/storage/v1/b/runs/o/demo%2Fgan%2Fended-1'
    """
    return f"{STORAGE_URL}/storage/v1/b/{bucket}/o/{quote(key, safe='')}"


def put_url(bucket: str, key: str) -> str:
    """The upload URL of an object."""
    return f"{STORAGE_URL}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}"


class TpuReconciler(pulumi.ComponentResource):
    """The workflow, its schedule and its account. `schedule_id`: full name, which the budget's stop pauses."""

    schedule_id: pulumi.Output[str]

    def __init__(self, name: str, args: TpuReconcilerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:TpuReconciler", name, None, opts)
        self._name, self._args, self._child = f"{name}-slices", args, pulumi.ResourceOptions(parent=self)
        account = serviceaccount.Account(
            self._name,
            project=args["project"],
            account_id=account_id(args["stack"], "slices"),
            display_name=f"Gangway {args['stack']}: bring slices back",
            opts=self._child,
        )
        # Without its permissions the workflow would fail, and could not log it.
        email: pulumi.Output[str] = after(account.email, *self._grants(account))
        title = f"{args['stack']}: slices that were taken away are asked for again"
        variables = self._environment()
        workflow = declare_workflow(self._name, args, title, reconcile_source(), variables, email, self._child)
        self.schedule_id = self._schedule(workflow, title, email).id
        register_outputs(self)

    def _environment(self) -> dict[str, pulumi.Input[str]]:
        args = self._args
        files, ended = pulumi.Output.from_input(args["files_bucket_name"]), pulumi.Output.from_input(args["ended_uri"])
        request = pulumi.Output.all(files, args["request_object"])
        return {
            "QUEUED_RESOURCE": args["queued_resource"],
            "REQUEST_ID": pulumi.Output.from_input(args["queued_resource"]).apply(lambda full: full.rpartition("/")[2]),
            "REQUEST_URL": request.apply(lambda known: f"{object_url(*known)}?alt=media"),
            "STATE_URL": files.apply(lambda bucket: object_url(bucket, STATE_OBJECT)),
            "STATE_PUT_URL": files.apply(lambda bucket: put_url(bucket, STATE_OBJECT)),
            "ENDED_URL": ended.apply(lambda uri: object_url(*uri.removeprefix("gs://").split("/", 1))),
            "PAUSES_SEC": json.dumps(PAUSES_SEC),
            "WINDOW_SEC": str(WINDOW_SEC),
            "PROJECT": args["project"],
            "ZONE": args["zone"],
            "LOG_NAME": args["log_name"],
        }

    def _grants(self, account: serviceaccount.Account) -> list[pulumi.CustomResource]:
        args = self._args
        buckets = {"files": (args["files_bucket_name"], RUN_WRITER), "runs": (args["run_bucket_name"], DATA_READER)}
        full = pulumi.Output.concat("projects/", args["project"], "/serviceAccounts/", args["service_account"])
        return [
            *grant_roles(self._name, ROLES, account, args["project"], self._child),
            *(
                storage.BucketIAMMember(
                    f"{self._name}-{what}", bucket=bucket, role=role, member=account.member, opts=self._child
                )
                for what, (bucket, role) in buckets.items()
            ),
            serviceaccount.IAMMember(
                f"{self._name}-nodes",
                service_account_id=full,
                role="roles/iam.serviceAccountUser",
                member=account.member,
                opts=self._child,
            ),
        ]

    def _schedule(self, workflow: workflows.Workflow, title: str, email: pulumi.Output[str]) -> cloudscheduler.Job:
        args = self._args
        return cloudscheduler.Job(
            self._name,
            project=args["project"],
            region=args["region"],
            description=title,
            schedule=f"*/{PERIOD_MINUTES} * * * *",
            time_zone="Etc/UTC",
            # The budget's stop pauses it, and `pulumi up --refresh` resumes it.
            paused=False,
            http_target=cloudscheduler.JobHttpTargetArgs(
                uri=pulumi.Output.concat("https://workflowexecutions.googleapis.com/v1/", workflow.id, "/executions"),
                http_method="POST",
                oauth_token=cloudscheduler.JobHttpTargetOauthTokenArgs(service_account_email=email),
            ),
            opts=self._child,
        )
