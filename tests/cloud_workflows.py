"""A small interpreter of Cloud Workflows' language: as much of it as our workflows use. A key or a function that it
does not know is a mistake. Expressions are read as Python's, which they are close to; what the language itself says of
them was not tried.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import yaml

KEYS = (
    {"assign"},
    {"assign", "next"},
    {"switch"},
    {"for"},
    {"return"},
    {"raise"},
    {"call", "args"},
    {"call", "args", "next"},
    {"call", "args", "result"},
    {"try"},
    {"try", "retry"},
    {"try", "except"},
    {"try", "retry", "except"},
)
# Of one execution; who goes in a circle does not come out of it.
MAX_STEPS = 10_000


class Fields(dict[str, Any]):
    """A mapping whose keys are read with a dot, as the language does."""

    def __getattr__(self, name: str) -> Any:
        return readable(self[name])


def readable(value: Any) -> Any:
    """A value of JSON as expressions see it."""
    return Fields(value) if isinstance(value, dict) else value


class Returned(Exception):  # noqa: N818 - it is no error
    """A `return` step."""


class Jumped(Exception):  # noqa: N818 - it is no error
    """A `next`."""


class Raised(Exception):  # noqa: N818 - the language's own word
    """A `raise` step, or a call that failed; the first argument is what `except` sees."""


def over_http(root: str, token: str) -> Callable[..., Any]:
    """Requests as they would be sent, to a stand-in whose paths begin with the API's host."""

    def send(method: str, url: str, query: Mapping[str, Any], body: Any) -> Any:
        words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
        address = url.replace("https://", f"{root}/", 1)
        address += f"{'&' if '?' in address else '?'}{urlencode(words)}" if words else ""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(address, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise Raised(Fields(code=error.code, message=error.read().decode())) from None
        try:
            return json.loads(text)
        except ValueError:
            return text.decode()

    return send


class Interpreter:
    """One workflow.

    Attributes:
        calls: requests that were made: method, URL and query.
        bodies: what was sent with them.
        slept_sec: how long it slept, all in all.
        now_sec: what its clock says.
        moment: called before each request.
    """

    def __init__(self, source: str, environment: Mapping[str, str], send: Callable[..., Any]) -> None:
        self.flows: dict[str, Any] = yaml.safe_load(source)
        self.environment, self._send = environment, send
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.bodies: list[Any] = []
        self.slept_sec, self.now_sec, self.ids = 0.0, 0.0, 0
        self.moment: Callable[[], None] = lambda: None
        self._left = MAX_STEPS

    def run(self, flow: str, *args: Any) -> Any:
        """Runs a flow -> what it returns. Raises Raised."""
        body = self.flows[flow]
        assert set(body) == {"params", "steps"}
        try:
            self._steps(body["steps"], dict(zip(body["params"], args, strict=True)))
        except Returned as returned:
            return returned.args[0]

    def _steps(self, steps: list[Any], names: dict[str, Any]) -> None:
        places = {name: place for place, step in enumerate(steps) for name in step}
        place = 0
        while place < len(steps):
            ((_, body),) = steps[place].items()
            place += 1
            try:
                self._step(body, names)
            except Jumped as jumped:
                if jumped.args[0] not in places:
                    raise
                place = places[jumped.args[0]]

    def _step(self, body: Mapping[str, Any], names: dict[str, Any]) -> None:
        assert set(body) in KEYS, set(body)
        self._left -= 1
        assert self._left, "in a circle"
        if "assign" in body:
            for assignment in body["assign"]:
                ((name, value),) = assignment.items()
                names[name] = self._value(value, names)
        elif "switch" in body:
            self._switch(body["switch"], names)
        elif "for" in body:
            assert set(body["for"]) == {"value", "in", "steps"}
            for item in self._value(body["for"]["in"], names):
                # What a loop assigns to a variable from outside stays assigned; its own is gone afterwards.
                names[body["for"]["value"]] = readable(item)
                self._steps(body["for"]["steps"], names)
                del names[body["for"]["value"]]
        elif "try" in body:
            self._attempt(body, names)
        elif "call" in body:
            self._call(body, names)
        elif "return" in body:
            raise Returned(self._value(body["return"], names))
        else:
            raise Raised(self._value(body["raise"], names))
        if "next" in body:
            raise Jumped(body["next"])

    def _switch(self, cases: list[Mapping[str, Any]], names: dict[str, Any]) -> None:
        for case in cases:
            rest = {key: value for key, value in case.items() if key != "condition"}
            assert len(rest) == 1, rest
            if not self._value(case["condition"], names):
                continue
            if "next" in rest:
                raise Jumped(rest["next"])
            return self._steps(rest["steps"], names) if "steps" in rest else self._step(rest, names)
        return None

    def _attempt(self, body: Mapping[str, Any], names: dict[str, Any]) -> None:
        assert body.get("retry", "${http.default_retry}") == "${http.default_retry}"
        try:
            self._step(body["try"], names)
        except Raised as raised:
            if "except" not in body:
                raise
            assert set(body["except"]) == {"as", "steps"}
            names[body["except"]["as"]] = raised.args[0]
            self._steps(body["except"]["steps"], names)

    def _call(self, body: Mapping[str, Any], names: dict[str, Any]) -> None:
        args = self._value(body["args"], names)
        if body["call"] == "sys.sleep":
            self.slept_sec += args["seconds"]
        elif body["call"].startswith("http."):
            assert args.keys() <= {"url", "query", "body", "auth"}
            assert args["auth"] == {"type": "OAuth2"}
            self._request(body, args, names)
        else:
            assert list(args) == self.flows[body["call"]]["params"]
            result = self.run(body["call"], *args.values())
            if "result" in body:
                names[body["result"]] = readable(result)

    def _request(self, body: Mapping[str, Any], args: Mapping[str, Any], names: dict[str, Any]) -> None:
        self.moment()
        method, query = body["call"].partition(".")[2].upper(), args.get("query", {})
        self.calls.append((method, args["url"], query))
        self.bodies.append(args.get("body"))
        answer = self._send(method, args["url"], query, args.get("body"))
        if "result" in body:
            names[body["result"]] = Fields(body=answer)

    def _new_id(self) -> str:
        self.ids += 1
        return f"00000000-0000-0000-0000-{self.ids:012}"

    def _value(self, value: Any, names: Mapping[str, Any]) -> Any:
        if isinstance(value, dict):
            return Fields({key: self._value(inner, names) for key, inner in value.items()})
        if isinstance(value, list):
            return [self._value(inner, names) for inner in value]
        if not (isinstance(value, str) and value.startswith("${")):
            return value
        functions = {
            "json": SimpleNamespace(decode=lambda text: readable(json.loads(text)), encode_to_string=json.dumps),
            "base64": SimpleNamespace(decode=base64.b64decode),
            "sys": SimpleNamespace(get_env=self.environment.__getitem__, now=lambda: self.now_sec),
            "list": SimpleNamespace(concat=lambda items, item: [*items, item]),
            "map": SimpleNamespace(get=lambda fields, key: fields.get(key)),
            "text": SimpleNamespace(split=lambda text, separator: text.split(separator)),
            "uuid": SimpleNamespace(generate=self._new_id),
            "default": lambda found, otherwise: otherwise if found is None else found,
            "double": float,
            "string": str,
            "len": len,
            "null": None,
        }
        return eval(value[2:-1], {"__builtins__": {}}, {**functions, **names})


def step_names(steps: list[dict[str, Any]]) -> Iterator[str]:
    """The names of all steps, those inside others as well."""
    for step in steps:
        ((name, body),) = step.items()
        yield name
        inner = [body.get("for", {}), body.get("except", {}), *body.get("switch", [])]
        for part in inner:
            yield from step_names(part.get("steps", []))


def methods(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All methods of a discovery document."""
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)
