"""Moto on loopback, for clients that botocore knows nothing of, or of another process: requests as they came."""

import re
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote


class Quiet(BaseHTTPRequestHandler):
    """Answers every request by `reply`."""

    protocol_version = "HTTP/1.1"

    def reply(self) -> tuple[int, dict[str, str], bytes]:
        raise NotImplementedError

    def do_GET(self) -> None:
        status, headers, body = self.reply()
        self.send_response(status)
        length = headers.pop("content-length", "")  # of HEAD: that of the object
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815  # the names are the base class's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Silent."""


class Moto(Quiet):
    """S3's own behaviour, as moto has it; Google's XML interface asks the same way. Within `mock_aws`."""

    def reply(self) -> tuple[int, dict[str, str], bytes]:
        path, _, query = self.path.partition("?")
        url = f"https://s3.amazonaws.com{unquote(path)}" + (f"?{query}" if query else "")
        headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=anyone/20260101/us-east-1/s3/aws4_request"}
        for name in ("Range", "Content-Type", "Content-Length"):
            if name in self.headers:
                headers[name] = self.headers[name]
        return answered(self.command, url, headers, self.rfile.read(int(self.headers.get("Content-Length", 0))))


Before = Callable[[str, Mapping[str, str]], bool]
"""Of a request's action and words: whether moto is not to have it, and the caller is told that all is well."""


def query_services(before: Before) -> type[Quiet]:
    """Auto Scaling, EC2 and the others that take forms: which one is asked stands in the request's signature."""

    class QueryServices(Quiet):
        def reply(self) -> tuple[int, dict[str, str], bytes]:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            words = dict(parse_qsl(body.decode()))
            action = words.get("Action", "")
            if before(action, words):
                return 200, {}, f"<{action}Response><ResponseMetadata/></{action}Response>".encode()
            found = re.search(r"Credential=[^/]+/\d+/([a-z0-9-]+)/([a-z0-9]+)/", self.headers["Authorization"])
            assert found is not None, self.headers["Authorization"]
            url = f"https://{found[2]}.{found[1]}.amazonaws.com{self.path}"
            kept = {name: self.headers[name] for name in ("Authorization", "Content-Type", "Content-Length")}
            return answered(self.command, url, kept, body)

    return QueryServices


def answered(method: str, url: str, given: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    """What moto says."""
    from botocore.awsrequest import AWSPreparedRequest
    from botocore.compat import HTTPHeaders
    from moto.core.models import botocore_stubber

    headers = HTTPHeaders()
    for name, value in given.items():
        headers[name] = value
    request = AWSPreparedRequest(method, url, headers, body, stream_output=False)
    answer: Any = botocore_stubber("before-send", request)
    assert answer is not None, url
    told = {name.lower(): value for name, value in answer.headers.items() if name.lower() != "transfer-encoding"}
    return answer.status_code, told, answer.content
