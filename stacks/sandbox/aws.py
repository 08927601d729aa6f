"""Aws: the sandbox's one way to talk to moto. Requests go through boto3, so botocore checks each of them.

Not a client of the real AWS: it is only made while moto stands in for it, with credentials that open nothing.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stacks.sandbox.wire import Wire, enum_errors, shaped

if TYPE_CHECKING:
    from botocore.model import OperationModel, Shape

__all__ = ["Aws", "expected", "one", "tag_specifications"]


class Aws:
    """Boto3 clients for one region, and a list of the requests made since `start`.

    Every request that builds something goes through `call`, every question through `read`; the first kind is listed.
    Both raise botocore's ParamValidationError for a malformed request and ClientError for one that moto refuses.
    """

    def __init__(self, region: str) -> None:
        import boto3

        self.region = region
        self._session = boto3.Session(region_name=region)
        self._clients: dict[str, Any] = {}
        self._calls: list[str] = []
        self.account: str = self.read("sts", "GetCallerIdentity", {})["Account"]

    def start(self) -> list[str]:
        """Begins a new list of requests and returns it; it fills as they are made."""
        self._calls = []
        return self._calls

    def request(self, service: str, operation: str, inputs: Mapping[str, Any], **renames: str) -> dict[str, Any]:
        """Pulumi's `inputs` as parameters of `operation`; `renames` maps wire names to the API's."""
        parameters: dict[str, Any] = shaped(inputs, _input_shape(self._operation(service, operation)), renames)
        return parameters

    def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
        """Makes a request that changes something."""
        self._calls.append(f"{service}:{operation}")
        _check(self._operation(service, operation), parameters)
        return self._send(service, operation, parameters)

    def read(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
        """Makes a request that only asks."""
        return self._send(service, operation, parameters)

    def validate(self, service: str, operation: str, parameters: Mapping[str, Any]) -> None:
        """Has botocore check and serialize a request that moto cannot take."""
        from botocore.serialize import create_serializer

        self._calls.append(f"{service}:{operation}")
        model = self._operation(service, operation)
        serializer: Any = create_serializer(model.service_model.metadata["protocol"])
        serializer.serialize_to_request(dict(parameters), model)
        _check(model, parameters)

    def _send(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
        from botocore import xform_name

        return getattr(self._client(service), xform_name(operation))(**parameters)

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            # The services are data here, and boto3's types know only literal names.
            session: Any = self._session
            self._clients[service] = session.client(service)
        return self._clients[service]

    def _operation(self, service: str, operation: str) -> "OperationModel":
        model: OperationModel = self._client(service).meta.service_model.operation_model(operation)
        return model


def _input_shape(model: "OperationModel") -> "Shape":
    assert model.input_shape is not None, f"{model.name} takes parameters"
    return model.input_shape


def _check(model: "OperationModel", parameters: Mapping[str, Any]) -> None:
    """Botocore's validation, and the words (enumerations) that botocore leaves to the service."""
    from botocore.exceptions import ParamValidationError
    from botocore.validate import validate_parameters

    shape = _input_shape(model)
    # Types first: the walk over the words may then rely on them.
    validate_parameters(parameters, shape)
    if errors := list(enum_errors(parameters, shape)):
        raise ParamValidationError(report="\n".join(errors))


def tag_specifications(resource_type: str, wire: Wire) -> dict[str, Any]:
    """EC2's parameter for tags at creation; empty for a resource without tags."""
    tags = wire.tags()
    return {"TagSpecifications": [{"ResourceType": resource_type, **tags}]} if tags else {}


def expected(parameters: Mapping[str, Any], wire: Wire) -> dict[str, Any]:
    """What EC2 should answer when asked for what `parameters` created: tags come back as `Tags`."""
    return {**{k: v for k, v in parameters.items() if k != "TagSpecifications"}, **wire.tags()}


def one(found: list[Any]) -> Mapping[str, Any]:
    """The only element, or nothing when moto no longer holds it."""
    answer: Mapping[str, Any] = found[0] if found else {}
    return answer
