"""The dashboard in a real Chromium: keyboard, names, colour schemes, live parts, actions, pages of other sites."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from gangway.jobs.local.engine import LocalQueue
from tests.gangway.jobs.test_contract import job
from tests.gangway.live.dashboard.conftest import add_line
from tests.gangway.live.dashboard.synthetic import write_runs

CHROMIUM = shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="needs Debian's chromium on PATH"),
    pytest.mark.timeout(600),
]
WAIT_MS = 30_000
"""For what the page does by itself, on a busy machine."""


class Dashboard(NamedTuple):
    """A running dashboard, `url` with its token, over these folders."""

    url: str
    runs: Path
    queue: LocalQueue

    @property
    def base(self) -> str:
        return self.url.partition("/?")[0]


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    runs, queue = tmp_path / "runs", LocalQueue(tmp_path / "queue")
    write_runs(runs, 60)
    add_line(runs / "run-00003", time=time.time(), images=3072, session=0, images_per_sec=111.0)
    words = ["--runs", str(runs), "--on", f"local:{queue.where}", "--port", "0", "--allow-actions", "--no-browser"]
    (tmp_path / "queue").mkdir()
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "gangway", "dashboard", *words]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = server.stdout.readline().removeprefix("dashboard: ").strip()
        yield Dashboard(url, runs, queue)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, dashboard: Dashboard) -> Iterator[Page]:
    """A page that has entered; a message on its console, as of a stopped script, fails the test."""
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    opened, messages = context.new_page(), list[str]()
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.goto(dashboard.url)
    expect(opened.get_by_text("All 60 runs")).to_be_visible()
    yield opened
    context.close()
    assert messages == []


def test_the_token_leaves_the_address_and_scripts_cannot_read_the_cookie(page: Page, dashboard: Dashboard) -> None:
    assert page.url == f"{dashboard.base}/"
    assert page.evaluate("document.cookie") == ""


def test_a_local_file_leads_in(browser: Browser, dashboard: Dashboard, tmp_path: Path) -> None:
    """As `gangway dashboard` opens a browser, so that the token is in no program's arguments."""
    (tmp_path / "open.html").write_text(f'<meta http-equiv="refresh" content="0; url={dashboard.url}">')
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((tmp_path / "open.html").as_uri())
        page.wait_for_url(f"{dashboard.base}/", timeout=WAIT_MS)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def focused(page: Page) -> str:
    return str(page.evaluate("(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText)"))


def test_everything_is_reached_and_done_by_keyboard(page: Page) -> None:
    page.goto(page.url + "runs")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    assert page.locator(":focus").bounding_box()["x"] >= 0  # type: ignore[index]  # it has one, as it is in sight
    for name in ("Overview", "Jobs", "Runs", "Suites"):
        page.keyboard.press("Tab")
        assert focused(page) == name
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert float(width.removesuffix("px")) >= 2
    page.keyboard.press("Tab")
    page.keyboard.type("stack-3")
    page.keyboard.press("Enter")
    expect(page.get_by_text(re.compile(r"^\d of 60 runs"))).to_be_visible()
    for box in page.get_by_role("checkbox").all()[:2]:
        box.focus()
        page.keyboard.press("Space")
    page.get_by_role("button", name="Compare").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
    assert page.get_by_role("img").count() >= 3
    names = [str(each.get_attribute("aria-label")) for each in page.get_by_role("img").all()]
    assert all(name.startswith("Line chart: ") for name in names)


@pytest.mark.parametrize("path", ["/", "/runs", "/jobs", "/suites", "run", "compare"])
def test_every_page_has_landmarks_one_heading_and_named_controls(page: Page, dashboard: Dashboard, path: str) -> None:
    page.goto(f"{dashboard.base}/runs")
    keys = [str(box.get_attribute("value")) for box in page.get_by_role("checkbox").all()[:2]]
    urls = {"run": f"/runs/{keys[0]}", "compare": f"/compare?run={keys[0]}&run={keys[1]}"}
    page.goto(dashboard.base + urls.get(path, path))
    snapshot = page.locator("body").aria_snapshot()
    for landmark in ("- banner:", "- main:", "- contentinfo:", '- navigation "Pages":'):
        assert landmark in snapshot
    assert page.get_by_role("heading", level=1).count() == 1
    controls = "button|link|textbox|searchbox|combobox|checkbox|img|progressbar|region|group|table"
    nameless = re.findall(rf"- (?:{controls})(?!.*\")(?=[: \n])", snapshot)
    assert nameless == []
    heads = page.locator("thead th:not([scope=col]), tbody th:not([scope=row])")
    assert heads.count() == 0
    levels = [int(each.evaluate("element => element.tagName[1]")) for each in page.locator("h1,h2,h3").all()]
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_it_follows_the_colour_scheme(browser: Browser, dashboard: Dashboard, scheme: str, is_dark: bool) -> None:
    with browser.new_context(color_scheme="dark" if scheme == "dark" else "light") as context:
        page = context.new_page()
        page.goto(dashboard.url)
        paper, ink = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        brightness = [sum(map(int, re.findall(r"\d+", colour))) for colour in (paper, ink)]
        assert (brightness[0] < brightness[1]) is is_dark
        if folder := os.environ.get("GANGWAY_SHOTS"):
            page.goto(f"{dashboard.base}/runs")
            page.screenshot(path=Path(folder) / f"runs-{scheme}.png")


def test_new_figures_appear_without_losing_the_place(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.base}/runs?q=run-00003")
    box = page.get_by_role("checkbox", name="Compare run-00003")
    box.check()
    box.focus()
    add_line(dashboard.runs / "run-00003", time=time.time(), images=4096, session=0, images_per_sec=987.0)
    expect(page.get_by_role("cell", name="987", exact=True)).to_be_visible()
    assert box.is_checked()
    assert focused(page) == "Compare run-00003"
    page.get_by_role("link", name="run-00003").click()
    status = page.get_by_role("status")
    expect(status).to_have_text("run-00003: running")
    add_line(dashboard.runs / "run-00003", time=time.time(), images=4096, session=0, event="interrupt", cause="SIGTERM")
    expect(status).to_have_text("run-00003: interrupted")
    page.get_by_role("link", name="Pause updates").click()
    expect(page.get_by_role("link", name="Resume updates")).to_be_visible()
    assert page.locator("[hx-get]").count() == 0


def test_it_works_without_scripts(browser: Browser, dashboard: Dashboard) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(dashboard.url)
        page.goto(f"{dashboard.base}/runs")
        page.get_by_label("State").select_option("interrupted")
        page.get_by_role("button", name="Show").click()
        assert "state=interrupted" in page.url
        page.get_by_role("link", name="USD").click()
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("USD")
        page.get_by_role("link", name=re.compile("^run-")).first.click()
        assert page.get_by_role("heading", name="Figures").is_visible()
        assert "Without JavaScript it does not" in page.content()


def test_a_job_is_cancelled_and_submitted_again(page: Page, dashboard: Dashboard) -> None:
    first = dashboard.queue.submit(job("echo begun; sleep 600", max_restarts=0))
    try:
        page.get_by_role("link", name=first).click()
        expect(page.get_by_role("group", name="Log")).to_contain_text("begun")
        page.get_by_role("link", name="Cancel...").click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("status")).to_have_text(f"{first}: cancelled")
        page.reload()
        page.get_by_role("link", name="Submit again...").click()
        page.get_by_role("button", name="Submit again").click()
        expect(page.get_by_role("heading", level=1)).not_to_contain_text(first)
        assert len(dashboard.queue.jobs()) == 2
    finally:
        for each in dashboard.queue.jobs():
            dashboard.queue.cancel(each.id)


@pytest.mark.attack("a web page in the same browser", "reads or changes something through the dashboard")
def test_a_page_of_another_site_reads_and_changes_nothing(browser: Browser, dashboard: Dashboard) -> None:
    """Also one on another port of this machine, which is the same site to a browser's cookies."""
    job_id = dashboard.queue.submit(job("sleep 600", max_restarts=0))
    target = f"{dashboard.base}/jobs/x/{job_id}/cancel"
    content = (
        f'<form id="f" method="post" action="{target}"><input name="form_token" value="x"></form>'
        f'<img src="{dashboard.base}/static/icon.svg" onload="document.title = \'read\'">'
        f'<script src="{dashboard.base}/static/htmx.min.js"></script><iframe src="{dashboard.base}/"></iframe>'
    )

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *args: object) -> None:
            """Be quiet."""

    other = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(dashboard.url)
            page.goto(f"http://127.0.0.1:{other.server_port}/")
            page.wait_for_timeout(500)
            assert page.title() == ""
            assert page.evaluate("typeof htmx") == "undefined"
            assert (
                page.evaluate(f"fetch('{dashboard.base}/runs', {{credentials: 'include'}}).catch(() => 'stopped')")
                == "stopped"
            )
            answer = page.evaluate_handle("document.getElementById('f').submit()")
            del answer
            page.wait_for_url(target)
            assert "refused" in page.locator("body").inner_text()
    finally:
        other.shutdown()
        other.server_close()
        assert not dashboard.queue.status(job_id).phase.is_over
        dashboard.queue.cancel(job_id)
