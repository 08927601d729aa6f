"""Moto's S3 on loopback, for clients that botocore knows nothing of: each request is handed to moto as it came."""

from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote


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
        from botocore.awsrequest import AWSPreparedRequest
        from botocore.compat import HTTPHeaders
        from moto.core.models import botocore_stubber

        path, _, query = self.path.partition("?")
        url = f"https://s3.amazonaws.com{unquote(path)}" + (f"?{query}" if query else "")
        headers = HTTPHeaders()
        headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=anyone/20260101/us-east-1/s3/aws4_request"
        for name in ("Range", "Content-Type", "Content-Length"):
            if name in self.headers:
                headers[name] = self.headers[name]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = AWSPreparedRequest(self.command, url, headers, body, stream_output=False)
        answer = botocore_stubber("before-send", request)
        assert answer is not None, url
        told = {name.lower(): value for name, value in answer.headers.items() if name.lower() != "transfer-encoding"}
        return answer.status_code, told, answer.content
