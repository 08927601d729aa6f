"""The sandbox: the plan applied to an in-process moto cloud with boto3, read back and compared with the declaration.

    with MotoCloud("us-east-2") as cloud:
        run_program(config, cloud)
        rows = cloud.read_back()

Every request passes botocore's own validation. Not AWS: moto has no quotas, no capacity and few of the service's
checks, and each row says what could not be shown. One module of handlers a service; nothing here runs without moto.
"""

from gangway.sandbox.cloud import HANDLERS, MotoCloud
from gangway.sandbox.rows import SandboxRow, Status

__all__ = ["HANDLERS", "MotoCloud", "SandboxRow", "Status"]
