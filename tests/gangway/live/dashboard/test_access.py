"""Who gets an answer of the dashboard: this machine's browser with the token, and no other page, name or user."""

import re

import pytest

from gangway.live.dashboard.access import Access
from tests.gangway.live.dashboard.asgi import ORIGIN, Answer, Client
from tests.gangway.live.dashboard.conftest import Open

PAGES = ("/", "/runs", "/jobs", "/suites", "/compare", "/static/htmx.min.js", "/nothing")
WEB_PAGE = pytest.mark.attack("a web page in the same browser", "reads or changes something through the dashboard")
USER = pytest.mark.attack("another user of this machine", "opens the dashboard without its token")


@pytest.fixture
def client(open_board: Open) -> Client:
    return open_board()


def refused(answer: Answer) -> bool:
    return answer.code in (403, 421) and len(answer.content) < 200


def test_the_token_becomes_a_cookie_and_leaves_the_address(client: Client, access: Access) -> None:
    answer = client.get(f"/?token={access.token}", {"cookie": None})
    assert (answer.code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{access.cookie}={access.session};")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert access.token not in cookie
    assert client.get("/").code == 200


def test_a_visit_from_elsewhere_enters_by_a_page_of_ours(client: Client, access: Access) -> None:
    """Its redirect would be made for the other site, and come without the cookie."""
    answer = client.get(f"/?token={access.token}", {"cookie": None, "sec-fetch-site": "cross-site"})
    assert answer.code == 200
    assert 'content="0; url=/"' in answer.text
    assert access.token not in answer.text


@USER
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("cookie", [None, "", "gangway-dashboard-8808=", "gangway-dashboard-8808=wrong", "a=b"])
def test_nothing_without_the_cookie(client: Client, page: str, cookie: str | None) -> None:
    assert refused(client.get(page, {"cookie": cookie}))


@USER
@pytest.mark.parametrize("query", ["token=", "token=wrong", "token=%FF", "token=a&token=b", "TOKEN=a"])
def test_a_wrong_token_sets_no_cookie(client: Client, query: str) -> None:
    answer = client.get(f"/?{query}", {"cookie": None})
    assert refused(answer)
    assert "set-cookie" not in answer.headers


@USER
def test_the_token_is_no_cookie_and_the_cookie_no_token(client: Client, access: Access) -> None:
    assert refused(client.get("/", {"cookie": f"{access.cookie}={access.token}"}))
    assert refused(client.get(f"/?token={access.session}", {"cookie": None}))
    assert access.token not in repr(access)


@WEB_PAGE
@pytest.mark.parametrize("host", ["evil.example:8808", "evil.example", "127.0.0.1", "127.0.0.1:80", "", "0.0.0.0:8808"])
@pytest.mark.parametrize("page", PAGES)
def test_a_rebound_name_gets_nothing(client: Client, access: Access, host: str, page: str) -> None:
    assert refused(client.get(page, {"host": host}))
    assert refused(client.get(f"/?token={access.token}", {"host": host}))


@pytest.mark.parametrize("host", ["localhost:8808", "127.0.0.1:8808", "[::1]:8808"])
def test_this_machines_names_are_answered(client: Client, host: str) -> None:
    assert client.get("/runs", {"host": host}).code == 200


@WEB_PAGE
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},  # another port of this machine
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8809"},
        {"origin": "http://localhost:8808"},
    ],
)
def test_other_sites_get_nothing_even_with_the_cookie(client: Client, page: str, headers: dict[str, str]) -> None:
    assert refused(client.get(page, headers))


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_its_own_pages_are_answered(client: Client, site: str) -> None:
    assert client.get("/", {"sec-fetch-site": site, "origin": ORIGIN}).code == 200


@WEB_PAGE
def test_no_answer_can_be_framed_run_inline_scripts_or_be_guessed_at(client: Client) -> None:
    for page, headers in ((page, headers) for page in PAGES for headers in ({}, {"cookie": None}, {"host": "evil"})):
        found = client.get(page, headers).headers
        policy = found["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert found["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in found
        assert found["cache-control"] == ("private, max-age=3600" if found["content-type"] == JS else "no-store")


JS = "text/javascript; charset=utf-8"


def test_pages_have_nothing_that_the_policy_would_stop(client: Client) -> None:
    for page in PAGES[:4]:
        text = client.get(page).text
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:|hx-on|hx-vals", text)
        assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/htmx.min.js" defer>']


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(client: Client, method: str) -> None:
    assert client.get("/", method=method).code == 405


@WEB_PAGE
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": None}, 403),
        ({"origin": "null"}, 403),
        ({"content-length": None}, 411),
        ({"content-length": "-1"}, 411),
        ({"transfer-encoding": "chunked"}, 411),
        ({"content-length": "5000"}, 413),
        ({"content-length": "9" * 40}, 413),
        ({}, 404),
    ],
)
def test_a_form_has_an_origin_and_a_bounded_length(client: Client, headers: dict[str, str | None], code: int) -> None:
    """And leads nowhere on a dashboard without actions."""
    assert client.post("/jobs/abc/job-1/cancel", {"form_token": "x"}, headers).code == code


def test_two_hosts_are_none(access: Access) -> None:
    assert access.hosts == {"127.0.0.1:8808", "localhost:8808", "[::1]:8808"}
    assert Access(8808).token != access.token
