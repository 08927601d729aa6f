"""From Pulumi's wire to requests of the AWS API, and to moto through boto3, so that botocore validates each one."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gangway.components.core.findings import nearest
from gangway.sandbox.rows import Applied

if TYPE_CHECKING:
    from botocore.model import OperationModel, Shape


class Wire:
    """One declared resource. Tracks used inputs, so that none is ignored silently."""

    def __init__(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> None:
        self.type, self.name = type_token, name
        self.inputs = {key: value for key, value in inputs.items() if value is not None}
        self._taken: set[str] = set()

    def take(self, *keys: str) -> dict[str, Any]:
        """Use the declared ones of `keys`."""
        self._taken.update(keys)
        return {key: self.inputs[key] for key in keys if key in self.inputs}

    def take_value(self, key: str, default: Any = None) -> Any:
        """Use one input; the default if it is not declared."""
        return self.take(key).get(key, default)

    def skip(self, *keys: str) -> None:
        """Mark inputs of Pulumi's provider (waiting, deleting) that are in no request."""
        self._taken.update(keys)

    def rest(self) -> dict[str, Any]:
        """Use all remaining inputs except the tags, which every service spells differently."""
        return self.take(*[key for key in self.inputs if key not in {*self._taken, "tags"}])

    def physical_name(self, key: str = "name") -> str:
        """The declared name, or one in Pulumi's form: the logical name and seven characters, deterministic here."""
        declared: str | None = self.take(key).get(key)
        suffix = hashlib.sha256(f"{self.type}::{self.name}".encode()).hexdigest()[:7]
        return declared or f"{self.name}-{suffix}"

    def tags(self, member: str = "Tags") -> dict[str, list[dict[str, str]]]:
        """The tags as a request's `member`, a list of Key and Value. Empty without tags: APIs refuse an empty list."""
        tags = self.take("tags").get("tags", {})
        return {member: [{"Key": key, "Value": value} for key, value in tags.items()]} if tags else {}

    def unsent(self) -> list[str]:
        """Unused inputs."""
        return sorted(self.inputs.keys() - self._taken)

    def outputs(self, **computed: Any) -> dict[str, Any]:
        """The inputs and computed values."""
        return {**self.inputs, **computed}


def to_shape(value: Any, shape: "Shape", renames: Mapping[str, str]) -> Any:
    """Convert `value` (camelCase, Pulumi's types) to `shape`; `renames` maps wire names to the API's."""
    model: Any = shape  # botocore's stubs do not tell the kinds of shapes apart
    if shape.type_name == "structure" and isinstance(value, Mapping):
        return _structure(value, model, renames)
    if shape.type_name == "map" and isinstance(value, Mapping):
        return {key: to_shape(item, model.value, renames) for key, item in value.items()}
    if shape.type_name == "list":
        return [to_shape(item, model.member, renames) for item in _items(value, model.member)]
    if shape.type_name == "boolean" and value in ("true", "false"):
        return value == "true"
    if shape.type_name in ("integer", "long", "float", "double"):
        return _number(value, shape.type_name in ("integer", "long"))
    return value


def _structure(value: Mapping[str, Any], model: Any, renames: Mapping[str, str]) -> dict[str, Any]:
    members = {member.lower(): member for member in model.members}
    request = {}
    for key, item in value.items():
        wanted = renames.get(key, key)
        member = members.get(wanted.lower(), wanted)
        request[member] = to_shape(item, model.members[member], renames) if member in model.members else item
    return request


def _items(value: Any, member: Any) -> list[Any]:
    """A list from Pulumi's list, dictionary (tags, dimensions) or single element."""
    if isinstance(value, list):
        return value
    names = set(getattr(member, "members", ()))
    if isinstance(value, Mapping) and "Value" in names:
        label = "key" if "Key" in names else "name"
        return [{label: key, "value": item} for key, item in value.items()]
    return [value]


def _number(value: Any, whole: bool) -> Any:
    """Pulumi sends numbers as floats, and some as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value
    return int(number) if whole and number.is_integer() else number


def enum_errors(value: Any, shape: "Shape", path: str = "") -> Iterator[str]:
    """Words unknown to the API's model, which botocore does not check."""
    model: Any = shape
    if shape.type_name == "structure":
        for key in value.keys() & model.members.keys():
            yield from enum_errors(value[key], model.members[key], f"{path}.{key}" if path else key)
    elif shape.type_name == "list":
        for index, item in enumerate(value):
            yield from enum_errors(item, model.member, f"{path}[{index}]")
    elif shape.type_name == "string" and model.enum and value not in model.enum:
        close = nearest(value, model.enum)
        hint = f"did you mean {close!r}?" if close else f"one of {', '.join(model.enum[:8])}"
        yield f"{path}: {value!r} is not a value botocore's model knows; {hint}"


class Aws:
    """Boto3 clients for one region, and a list of the requests since `start`.

    Use `call` for changes, which are listed, and `read` for queries. Both raise botocore's ParamValidationError for an
    invalid request and ClientError for one that moto refuses.
    """

    def __init__(self, region: str, key: tuple[str, str] | None = None) -> None:
        """`key`: an access key with its secret; those of the environment if omitted."""
        import boto3

        self.region = region
        id_, secret = key or (None, None)
        self._session = boto3.Session(id_, secret, region_name=region)
        self._clients: dict[str, Any] = {}
        self._calls: list[str] = []
        self.account: str = self.read("sts", "GetCallerIdentity", {})["Account"]

    def start(self) -> list[str]:
        """Begin and return a new list of requests; it fills as they are made."""
        self._calls = []
        return self._calls

    def request(self, service: str, operation: str, inputs: Mapping[str, Any], **renames: str) -> dict[str, Any]:
        """Pulumi's `inputs` as parameters of `operation`; `renames` maps wire names to the API's."""
        parameters: dict[str, Any] = to_shape(inputs, _input_shape(self._operation(service, operation)), renames)
        return parameters

    def create(
        self, service: str, operation: str, inputs: Mapping[str, Any], **renames: str
    ) -> tuple[dict[str, Any], Any]:
        """Make the request of Pulumi's `inputs` (see `request`). Returns its parameters and the answer."""
        parameters = self.request(service, operation, inputs, **renames)
        return parameters, self.call(service, operation, parameters)

    def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
        """Make a request that changes something."""
        self._calls.append(f"{service}:{operation}")
        _check(self._operation(service, operation), parameters)
        return self._send(service, operation, parameters)

    def read(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
        """Make a read-only request."""
        return self._send(service, operation, parameters)

    def validate(self, service: str, operation: str, parameters: Mapping[str, Any]) -> None:
        """Let botocore check and serialize a request that moto lacks."""
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
            # Services vary at runtime, but boto3's types need literal names.
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
    from botocore.exceptions import ParamValidationError
    from botocore.validate import validate_parameters

    shape = _input_shape(model)
    # Types first: the enumeration walk relies on them.
    validate_parameters(parameters, shape)
    if errors := list(enum_errors(parameters, shape)):
        raise ParamValidationError(report="\n".join(errors))


def tag_specifications(resource_type: str, wire: Wire) -> dict[str, Any]:
    """EC2's tags at creation; empty without tags."""
    tags = wire.tags()
    return {"TagSpecifications": [{"ResourceType": resource_type, **tags}]} if tags else {}


def expected(parameters: Mapping[str, Any], wire: Wire) -> dict[str, Any]:
    """What an answer should have of `parameters`: EC2's tags are in `Tags`."""
    if "TagSpecifications" not in parameters:
        return dict(parameters)
    return {**{k: v for k, v in parameters.items() if k != "TagSpecifications"}, **wire.tags()}


def one(found: list[Any]) -> Mapping[str, Any]:
    """The only element, or an empty mapping if moto lost it."""
    answer: Mapping[str, Any] = found[0] if found else {}
    return answer


def find(found: Iterable[Mapping[str, Any]], **fields: Any) -> Mapping[str, Any]:
    """The first element with these fields, or an empty mapping."""
    return next((item for item in found if all(item.get(key) == value for key, value in fields.items())), {})


Handler = Callable[[Aws, Wire], Applied]


def validated(
    aws: Aws,
    wire: Wire,
    service: str,
    operation: str,
    parameters: Mapping[str, Any],
    id_: str,
    more: str = "",
    **computed: Any,
) -> Applied:
    """A resource whose request moto lacks. `more`: added to the note; `computed`: outputs."""
    aws.validate(service, operation, parameters)
    note = f"moto has no {operation}: botocore checked and serialized the request{more}"
    return Applied(id_, wire.outputs(**computed), note=note)


Read = Callable[[Aws, Mapping[str, Any], str], Mapping[str, Any]]
"""Reads a resource's fields back, given the parameters of its request and its id."""


def put(
    service: str,
    operation: str,
    id_: str,
    read: Read | None = None,
    *,
    named: str = "",
    tag_type: str = "",
    skipped: tuple[str, ...] = (),
    fixed: Mapping[str, Any] = MappingProxyType({}),
    outputs: Mapping[str, str] = MappingProxyType({}),
    documents: tuple[str, ...] = (),
    uncompared: tuple[str, ...] = (),
    unkept: tuple[str, ...] = (),
    more: str = "",
    **renames: str,
) -> Handler:
    """The handler of a resource that one request sets from all inputs. `id_`: a format string, as in `outputs`, over
    the request's parameters, `made` (the answer), `aws` and `wire`; `read`: None if moto lacks the request; `named`:
    the parameter that takes the physical name; `tag_type`: EC2's resource type for tags; `skipped`: inputs that are in
    no request; `fixed`: inputs that Pulumi does not declare; `documents`: parameters in JSON, compared as data;
    `uncompared`: parameters that are not read back; `more`: added to the note.
    """

    def handle(aws: Aws, wire: Wire) -> Applied:
        wire.skip(*skipped)
        name = {named: wire.physical_name(named if named in wire.inputs else "name")} if named else {}
        tags = {} if tag_type else {key: value for key, value in wire.take("tags").items() if value}
        parameters = aws.request(service, operation, {**name, **tags, **wire.rest(), **fixed}, **renames)
        parameters |= tag_specifications(tag_type, wire) if tag_type else {}

        def values(made: Any) -> tuple[str, dict[str, str]]:
            texts = [text.format(made=made, aws=aws, wire=wire, **parameters) for text in (id_, *outputs.values())]
            return texts[0], {**({"name": name[named]} if named else {}), **dict(zip(outputs, texts[1:], strict=True))}

        if read is None:
            place, computed = values({})
            return validated(aws, wire, service, operation, parameters, place, more, **computed)
        place, computed = values(aws.call(service, operation, parameters))
        declared = {key: value for key, value in expected(parameters, wire).items() if key not in uncompared}
        return Applied(
            place,
            wire.outputs(**computed),
            _parsed(declared, documents),
            lambda: _parsed(read(aws, parameters, place), documents),
            unkept,
        )

    return handle


def _parsed(fields: Mapping[str, Any], documents: tuple[str, ...]) -> Mapping[str, Any]:
    """IAM returns documents as data already."""
    texts = {key: json.loads(fields[key]) for key in documents if isinstance(fields[key], str)}
    return {**fields, **texts}
