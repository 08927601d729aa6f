"""FSx's data repository tasks in small, over HTTP on 127.0.0.1: each look at a task is a step of it.

Not a test; `conftest.py` loads it. What a client sends is checked by botocore before it comes here.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of the stand-in
    """An answer that is an error, by its name."""


class Fsx:
    """The stand-in.

    Attributes:
        tasks: by id, as the API tells them; `looks` is how often one is looked at before it is over.
        asked: the operations and their bodies, in their order.
        looks_until_done: of a task that is begun.
        ends_as: its lifecycle then.
        failed: files of it that could not be exported.
        gone: whether there is no file system any more.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.looks_until_done, self.ends_as, self.failed, self.gone = 2, "SUCCEEDED", 0, False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                operation = self.headers["X-Amz-Target"].rpartition(".")[2]
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    status, answer = 200, outer.answer(operation, body)
                except Refusal as refusal:
                    status, answer = 400, {"__type": str(refusal), "Message": str(refusal)}
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def begin(self, file_system_id: str, paths: list[str]) -> dict[str, Any]:
        """A task, as somebody begins it."""
        task: dict[str, Any] = {
            "TaskId": f"task-{len(self.tasks):017x}", "Lifecycle": "EXECUTING", "Type": "EXPORT_TO_REPOSITORY",
            "CreationTime": 1.76e9, "FileSystemId": file_system_id, "Paths": paths, "looks": self.looks_until_done,
            "Status": {"TotalCount": 10, "SucceededCount": 0, "FailedCount": 0},
        }  # fmt: skip
        self.tasks[task["TaskId"]] = task
        return task

    def answer(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        """See the API."""
        self.asked.append((operation, body))
        if operation == "CreateDataRepositoryTask":
            if self.gone:
                raise Refusal("FileSystemNotFound")
            if any(task["Lifecycle"] == "EXECUTING" for task in self.tasks.values()):
                raise Refusal("DataRepositoryTaskExecuting")
            return {"DataRepositoryTask": self._told(self.begin(body["FileSystemId"], body["Paths"]))}
        assert operation == "DescribeDataRepositoryTasks", operation
        if ids := body.get("TaskIds"):
            return {"DataRepositoryTasks": [self._looked_at(self.tasks[id_]) for id_ in ids]}
        wanted = {one["Name"]: one["Values"] for one in body["Filters"]}
        found = [
            task
            for task in self.tasks.values()
            if task["FileSystemId"] in wanted["file-system-id"] and task["Lifecycle"] in wanted["task-lifecycle"]
        ]
        return {"DataRepositoryTasks": [self._told(task) for task in found]}

    def _looked_at(self, task: dict[str, Any]) -> dict[str, Any]:
        task["looks"] -= 1
        if task["looks"] < 0 and task["Lifecycle"] == "EXECUTING":
            task["Lifecycle"] = self.ends_as
            task["Status"] = {"TotalCount": 10, "SucceededCount": 10 - self.failed, "FailedCount": self.failed}
            if self.ends_as == "FAILED":
                task["FailureDetails"] = {"Message": "S3 said AccessDenied"}
        return self._told(task)

    @staticmethod
    def _told(task: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in task.items() if key != "looks"}


@contextmanager
def serving() -> Iterator[Fsx]:
    """A stand-in that serves meanwhile."""
    fsx = Fsx()
    thread = threading.Thread(target=fsx.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fsx
    finally:
        fsx.server.shutdown()
        thread.join()
        fsx.server.server_close()
