"""The sandbox: the plan applied to an in-process moto cloud with boto3, read back and compared with the declaration.

    with MotoCloud("us-east-2") as cloud:
        run_program(config, cloud)
        rows = cloud.read_back()

botocore validates every request. moto is not AWS: it has no quotas, no capacity and few of the services' checks; each
row says what could not be shown. One module of handlers per service.
"""

from gangway.sandbox.cloud import HANDLERS, MotoCloud
from gangway.sandbox.rows import SandboxRow, Status

__all__ = ["HANDLERS", "MotoCloud", "SandboxRow", "Status"]
