"""``placeproof explore``: a page that is served to this machine, and to who has the address."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from placeproof.cli.main import run

STARTED = ["fsdp(8) * tp(2)", "--model", "llama3-8b", "--set", "b=2"]


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "placeproof", "explore", *STARTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with started() as both:
        yield both


def got(address: str, path: str = "/", host: str | None = None, method: str = "GET", **fields: str) -> tuple[int, str, dict[str, str]]:
    """The answer to a question, with the token of the address unless another is given."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(str(url.hostname), url.port or 0, timeout=60)
    query = url.query if not fields else urlencode({"token": url.query.partition("=")[2], **fields})
    connection.request(method, f"{path}?{query}", headers={"Host": url.netloc if host is None else host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_any_strategy_is_derived(server: tuple[subprocess.Popen[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    """The first page is of what was asked for; another of what its form says; each says what the command line says."""
    _, address = server
    for strategy, settings in (
        ("fsdp(8) * tp(2)", {}),
        ("zero1(4) * pp(2)", {"strategy": "zero1(4) * pp(2)", "model": "llama3-8b", "set": "b=1 m=4"}),
    ):
        status, text, headers = got(address, **settings)
        assert status == 200
        chosen = settings.get("set", "b=2").split()
        assert run(["derive", strategy, "--model", "llama3-8b", *(word for one in chosen for word in ("--set", one)), "--brief"]) == 0
        assert f"<h1>{capsys.readouterr().out.strip()}</h1>" in text
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "form-action 'self'" in text
        assert 'id="live"' in text


def test_what_is_wrong_is_said_in_the_page(server: tuple[subprocess.Popen[str], str]) -> None:
    status, text, _ = got(server[1], strategy="<b>nothing</b>")
    assert status == 200
    assert "error[PP10" in text
    assert "<b>nothing" not in text
    assert 'value="&lt;b&gt;nothing&lt;/b&gt;"' in text


def test_others_are_refused(server: tuple[subprocess.Popen[str], str]) -> None:
    """Who has no token; another name for this address, by which another site would ask (DNS rebinding); other paths and methods."""
    _, address = server
    port = urlsplit(address).port
    assert got(address, host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil.example", ""):
        assert got(address, host=host)[0] == 403
    for token in ("", "x", urlsplit(address).query.partition("=")[2][:-1], "é"):
        status, text, _ = got(address, token=token)
        assert status == 403
        assert "llama" not in text
    assert got(address, path="/etc/passwd")[0] == 404
    assert got(address, method="POST")[0] == 501


def test_nothing_else_listens(server: tuple[subprocess.Popen[str], str]) -> None:
    """One socket, and that on the loopback."""
    process, address = server
    port = urlsplit(address).port or 0
    assert address.startswith("http://127.0.0.1:")
    for table in ("tcp", "tcp6"):
        rows = [row.split() for row in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]]
        held = {os.readlink(one) for one in Path(f"/proc/{process.pid}/fd").iterdir() if one.is_symlink()}
        own = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]
        assert own == ([f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}:{port:04X}"] if table == "tcp" else [])


def test_a_token_is_new_each_time(server: tuple[subprocess.Popen[str], str]) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", server[1])


def test_an_interrupt_ends_it() -> None:
    with started() as (process, address):
        assert got(address)[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "interrupted\n"


REFUSED = [(["nothing"], "PP10"), (["zero3", "--port", "70000"], "PP104"), (["zero3", "--cluster", "dgx-h100"], "PP104")]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_what_cannot_be_is_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explore", *arguments]) == 2
    assert told in capsys.readouterr().err
