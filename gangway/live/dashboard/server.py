"""Serves the dashboard on the loopback interface until Ctrl-C."""

import errno
import html
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from gangway.components.core.findings import InputError
from gangway.live.dashboard.access import Access
from gangway.live.dashboard.app import Board, get_app

_MOST_REQUESTS, _MOST_HEADER_BYTES, _KEEP_ALIVE_SEC, _END_SEC = 64, 16_384, 10, 2


def serve(board: Board, port: int, say: Callable[[str], object], *, open_browser: bool) -> None:
    """Print the URL with the token, and serve. InputError: the port is in use."""
    with bind(port) as listener:
        host, port = listener.getsockname()[:2]
        access = Access(port)
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={access.token}"
        config = uvicorn.Config(
            get_app(board, access),
            log_level="warning",
            access_log=False,  # it would write the token
            server_header=False,
            proxy_headers=False,
            http="h11",
            ws="none",
            lifespan="off",
            limit_concurrency=_MOST_REQUESTS,
            h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
            timeout_keep_alive=_KEEP_ALIVE_SEC,
            timeout_graceful_shutdown=_END_SEC,
        )
        board.index.start()
        say(f"dashboard: {url}")
        say("open it on this machine; Ctrl-C ends it")
        with _opened(url, wanted=open_browser):
            uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def bind(port: int) -> Iterator[socket.socket]:
    """A socket that only this machine reaches; on IPv6 where there is no IPv4. InputError: the port is in use."""
    try:
        listener = _bind(socket.AF_INET, "127.0.0.1", port)
    except OSError as error:
        if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise _port_mistake(port, error) from None
        listener = _bind(socket.AF_INET6, "::1", port)
    with listener:
        yield listener


def _bind(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _port_mistake(port: int, error: OSError) -> InputError:
    is_used = error.errno == errno.EADDRINUSE
    problem = "in use by another program" if is_used else f"cannot be used: {error.strerror}"
    return InputError("--port", problem, value=port, allowed="a free port from 1024 to 65535", fix="--port 0")


@contextmanager
def _opened(url: str, *, wanted: bool) -> Iterator[None]:
    """Open a browser by a file that only this user can read: other users can see a program's arguments."""
    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="gangway-dashboard-") as folder:
        page = Path(folder) / "open.html"
        page.touch(0o600)
        link = html.escape(url)
        refresh = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={link}">'
        page.write_text(f'{refresh}<a href="{link}">Dashboard</a>', "utf-8")
        webbrowser.open(page.as_uri())
        yield
