"""AWS's API for checks: short timeouts, refusals as NoAnswerError, and who the caller is."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gangway.components.core.findings import InputError
from gangway.live.preflight.check import NoAnswerError

Clients: TypeAlias = Callable[[str, str], Any]
"""Makes a boto3 client from a service and a region."""
CONNECT_SEC, READ_SEC = 4, 10
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "403")
# Where IAM's action has another name than the call.
_IAM_ACTIONS: Mapping[str, str] = {
    "budgets:DescribeBudgets": "budgets:ViewBudget",
    "resourcegroupstaggingapi:GetResources": "tag:GetResources",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "service-quotas:GetAWSDefaultServiceQuota": "servicequotas:GetAWSDefaultServiceQuota",
    "service-quotas:GetServiceQuota": "servicequotas:GetServiceQuota",
}
LOG_IN = "aws sso login, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def open_clients() -> Clients:
    """Clients with the caller's credentials, one per service and region."""
    import boto3
    from botocore.config import Config

    retries: Any = {"mode": "standard", "total_max_attempts": 2}
    limits = Config(connect_timeout=CONNECT_SEC, read_timeout=READ_SEC, retries=retries, max_pool_connections=20)
    made: dict[tuple[str, str], Any] = {}
    lock = threading.Lock()

    def get(service: str, region: str) -> Any:
        with lock:  # a session makes clients for one thread at a time
            if (service, region) not in made:
                client: Any = boto3.client(service, region_name=region, config=limits)  # type: ignore[call-overload]  # one overload a service
                made[service, region] = client
            return made[service, region]

    return get


@dataclass(frozen=True)
class Identity:
    """The caller. Empty if STS gave no answer."""

    account: str
    arn: str


@dataclass(frozen=True)
class Aws:
    """Calls in one region. A call is written as its source is shown: `ec2:DescribeImages`."""

    clients: Clients
    region: str

    def call(self, source: str, region: str = "", /, **parameters: Any) -> Any:
        """The answer. NoAnswerError: refused, or not reached."""
        from botocore import xform_name
        from botocore.exceptions import BotoCoreError, ClientError

        service, _, operation = source.partition(":")
        try:
            client = self.clients(service, region or self.region)
            return getattr(client, xform_name(operation))(**parameters)
        except ClientError as refusal:
            raise _refused(source, refusal.response.get("Error", {})) from None
        except BotoCoreError as failure:
            raise NoAnswerError(f"{type(failure).__name__}: {failure}", "look at the network and the region") from None

    def pages(self, source: str, key: str, region: str = "", /, **parameters: Any) -> Iterator[Any]:
        """The rows of all pages, whatever the service calls its token."""
        token: dict[str, Any] = {}
        while True:
            page = self.call(source, region, **parameters, **token)
            yield from page[key]
            found = next((name for name in _TOKENS if page.get(name)), "")
            if not found:
                return
            token = {_TOKENS[found]: page[found]}


_TOKENS = {"NextToken": "NextToken", "PaginationToken": "PaginationToken", "Marker": "Marker"}


def _refused(source: str, error: Mapping[str, Any]) -> NoAnswerError:
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    if code in _DENIED:
        action = _IAM_ACTIONS.get(source, source)
        return NoAnswerError(f"no permission for {action}: {message}", f"ask for the permission {action}", code)
    return NoAnswerError(f"{code}: {message}", "", code)


def find_identity(aws: Aws) -> Identity:
    """Who calls. InputError: no credentials, or AWS refuses them."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as UnreachableError

    try:
        found = aws.clients("sts", aws.region).get_caller_identity()
    except (UnreachableError, HTTPClientError):
        return Identity("", "")  # the checks report it, each for itself
    except (BotoCoreError, ClientError) as problem:
        raise InputError("AWS", "no valid credentials", value=str(problem), fix=LOG_IN) from None
    return Identity(found["Account"], found["Arn"])
