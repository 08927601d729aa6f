"""Opens each provider's price source with the available credentials. Only this module loads an SDK."""

import os
from datetime import datetime
from typing import Any, cast

from components.catalog.loader import Provider, load_provider
from components.catalog.schema import GcpMachineType
from gangway.finops.prices.source import PriceSource, SourceError, Web, WebSession, plain_session

GOOGLE_KEY_VARIABLE = "GANGWAY_GOOGLE_API_KEY"
"""An API key of a project with the Cloud Billing API, instead of Application Default Credentials."""
MAX_ATTEMPTS = 6
CONNECT_SEC = 10


def open_source(provider: Provider, now: datetime) -> PriceSource:
    """Open the source of `provider`. SourceError: it needs credentials, and there are none."""
    if provider == "aws":
        return _aws(now)
    if provider == "gcp":
        return _gcp(now)
    from gangway.finops.prices.azure import AzureSource

    return AzureSource(Web(plain_session()), now.date())


def _aws(now: datetime) -> PriceSource:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    from gangway.finops.prices.aws import AwsPublicSource, AwsSource

    try:
        # A missing profile fails here, broken credentials on the next line.
        session = boto3.Session()
        signed_in = session.get_credentials() is not None
    except BotoCoreError as problem:
        raise SourceError(f"AWS's credentials cannot be read: {problem}") from None
    if not signed_in:
        return AwsPublicSource(Web(plain_session()), now.date())
    config = Config(retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS}, connect_timeout=CONNECT_SEC)
    made: dict[tuple[str, str], Any] = {}

    def client(service: str, region: str) -> Any:
        if (service, region) not in made:
            # boto3's types need a literal service name.
            make: Any = session.client
            made[service, region] = make(service, region_name=region, config=config)
        return made[service, region]

    return AwsSource(client, now)


def _gcp(now: datetime) -> PriceSource:
    from components.gcp.tpu.api import TpuError, open_session
    from gangway.finops.prices.gcp import API_URL, GcpSource

    key = os.environ.get(GOOGLE_KEY_VARIABLE)
    if key:
        session, how = plain_session(), f"the Cloud Billing Catalog, with the key in {GOOGLE_KEY_VARIABLE}"
    else:
        try:
            session = cast("WebSession", open_session(API_URL))
        except TpuError as problem:
            raise SourceError(f"{problem}; an API key in {GOOGLE_KEY_VARIABLE} will do as well") from None
        how = "the Cloud Billing Catalog, with Application Default Credentials"
    machines = cast("dict[str, GcpMachineType]", dict(load_provider("gcp").machines))
    return GcpSource(Web(session), machines, now.date(), how, key or None)
