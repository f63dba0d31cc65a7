"""The live page refuses every request but those of the user's own browser."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from served import record, served

from steelyard.errors import InputError
from steelyard.page.address import open_address, state_file
from steelyard.page.security import HEADERS, document_policy
from steelyard.page.serving import PageServer
from steelyard.runs.writer import Recorder

PLACES = (
    "",
    "run/good/",
    "run/good/events",
    "runs.json",
    "compare/?run=good",
    "report/good",
    "assets/page.js",
)
STRANGE_NAMES = (
    "../secret",
    "..%2Fsecret",
    "%2e%2e%2fsecret",
    "%2e%2e/secret",
    "good/../../secret",
    "secret",
    "..",
    ".",
    "%00",
    "good%00",
    "*",
    "~",
    "good%2F..%2Fgood",
)
NAMED_PLACES = (
    "run/{}/",
    "run/{}/events",
    "report/{}",
    "compare/?run={}",
    "compare/?run=good&run={}",
    "assets/{}",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside") / "runs"
    for path in (folder / "good", folder.parent / "secret"):
        with Recorder(path) as recorder:
            record(recorder, 1)
    return folder


@pytest.fixture(scope="module")
def page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEELYARD_CONFIG", str(tmp_path_factory.mktemp("settings")))
        with served(folder) as server:
            yield server


def ask(url: str, method: str = "GET", **headers: str) -> httpx.Response:
    """The head of the answer, and its body if it ends."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.stream(method, url, headers=names, timeout=60) as response:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.read()
        return response


def raw_status(page: PageServer, target: str, *headers: str) -> bytes:
    """The status for a request that is sent as it is: httpx tidies paths up."""
    host = origin(page).removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(host.partition(":")[2])), timeout=60) as connection:
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *headers, "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        with connection.makefile("rb") as answer:
            return answer.readline().split()[1]


def origin(page: PageServer) -> str:
    return page.url.rsplit("/", 2)[0]


@pytest.mark.parametrize("place", PLACES)
def test_every_answer_has_the_headers(page: PageServer, place: str) -> None:
    answer = ask(page.url + place)
    assert answer.status_code == 200
    for name, value in HEADERS.items():
        if name != "Content-Security-Policy":
            assert answer.headers[name] == value
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("token", ["", "x", "wrong", "%00", "..", "é"])
def test_without_the_token_there_is_nothing(page: PageServer, place: str, token: str) -> None:
    right = page.url.rsplit("/", 2)[1]
    token = {"wrong": right[:-1] + ("A" if right[-1] != "A" else "B")}.get(token, token)
    for path in (f"{token}/{place}", place, f"{token}{place}"):
        for method in ("GET", "HEAD", "POST"):
            answer = ask(f"{origin(page)}/{path}", method)
            assert (answer.status_code, answer.content) == (404, b"")
            assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::1]:{port}"]
)
def test_a_foreign_host_is_refused(page: PageServer, host: str) -> None:
    port = origin(page).rpartition(":")[2]
    answer = ask(page.url, Host=host.format(port=port))
    assert answer.status_code == 403
    assert ask(page.url, Host=f"localhost:{port}").status_code == 200


def test_two_hosts_are_refused(page: PageServer) -> None:
    path = page.url.removeprefix(origin(page))
    assert raw_status(page, path) == b"200"
    assert raw_status(page, path, "Host: evil.example") in (b"400", b"403")


@pytest.mark.parametrize("place", PLACES)
def test_other_web_sites_are_refused(page: PageServer, place: str) -> None:
    url, own = page.url + place, origin(page)
    port = own.rpartition(":")[2]
    for foreign in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        f"https://127.0.0.1:{port}",
        f"http://localhost:{port}",
    ):
        assert ask(url, Origin=foreign).status_code == 403
    assert ask(url, Origin=own).status_code == 200
    for site in ("cross-site", "same-site", "anything"):
        assert ask(url, Sec_Fetch_Site=site).status_code == 403
        for mode, target in (("no-cors", "script"), ("navigate", "iframe")):
            answer = ask(url, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=target)
            assert answer.status_code == 403
    for site in ("same-origin", "none"):
        assert ask(url, Sec_Fetch_Site=site).status_code == 200


def test_a_link_may_open_the_page_in_a_tab(page: PageServer) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(page.url, **link).status_code == 200
    assert ask(page.url, "HEAD", **link).status_code == 403


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_only_reading_is_possible(page: PageServer, place: str, method: str) -> None:
    answer = ask(page.url + place, method)
    assert (answer.status_code, answer.content) == (405, b"")
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("place", PLACES)
def test_head_has_no_body_and_ends(page: PageServer, place: str) -> None:
    answer = httpx.head(page.url + place, timeout=60)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("name", STRANGE_NAMES)
@pytest.mark.parametrize("place", NAMED_PLACES)
def test_names_lead_nowhere_else(page: PageServer, place: str, name: str) -> None:
    path = page.url.removeprefix(origin(page)) + place.format(name)
    assert raw_status(page, path) == b"404"


def test_the_port_is_no_proxy(page: PageServer) -> None:
    assert raw_status(page, page.url) == b"404"


def test_documents_have_a_new_nonce_each_time(page: PageServer) -> None:
    answers = [ask(page.url + place) for place in ("", "", "run/good/")]
    policies = [answer.headers["content-security-policy"] for answer in answers]
    nonces = [policy.partition("'nonce-")[2].partition("'")[0] for policy in policies]
    assert len({*nonces, ""}) == 4
    assert policies == [document_policy(nonce) for nonce in nonces]
    assert all(nonce in answer.text for nonce, answer in zip(nonces, answers, strict=True))


def test_it_listens_on_this_machine_only(page: PageServer) -> None:
    (listening,) = [each for server in page.servers for each in server.sockets]
    assert listening.getsockname()[0] == "127.0.0.1"


def test_the_address_is_kept_outside_of_the_folder_for_this_user_only(tmp_path: Path) -> None:
    opened = open_address(tmp_path)
    opened.socket.close()
    file = state_file(tmp_path)
    assert tmp_path not in file.parents
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert len(opened.address.token) == 43
    again = open_address(tmp_path)
    again.socket.close()
    assert again.address == opened.address
    other = open_address(tmp_path.parent)
    other.socket.close()
    assert other.address.token != opened.address.token


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"port": 25000, "token": "short"}', '{"port": "x", "token": 5}']
)
def test_a_damaged_address_is_replaced(tmp_path: Path, text: str) -> None:
    first = open_address(tmp_path)
    first.socket.close()
    state_file(tmp_path).write_text(text)
    second = open_address(tmp_path)
    second.socket.close()
    assert second.address.token != first.address.token
    assert json.loads(state_file(tmp_path).read_text())["token"] == second.address.token


def test_an_address_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    first = open_address(tmp_path)
    first.socket.close()
    os.chmod(state_file(tmp_path), 0o644)
    second = open_address(tmp_path)
    second.socket.close()
    assert second.address.token != first.address.token


def test_if_the_port_is_taken_another_is_chosen_with_another_token(tmp_path: Path) -> None:
    first = open_address(tmp_path)
    second = open_address(tmp_path)
    assert second.address.port != first.address.port
    assert second.address.token != first.address.token
    assert str(first.address.port) in (second.note or "")
    with pytest.raises(InputError, match=f"port {first.address.port} is taken"):
        open_address(tmp_path, first.address.port)
    first.socket.close()
    second.socket.close()
    third = open_address(tmp_path)
    third.socket.close()
    assert third.address == first.address


def test_a_port_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="port 70000"):
        open_address(tmp_path, 70000)
