"""The server of ``placeproof explore``: one page, for this machine, to who has the token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

from placeproof.core.diagnostics import InputError, refuse

if TYPE_CHECKING:
    from placeproof.report.document import Document

#: Seconds after which a client that says nothing is left.
_PATIENCE = 10
_HERE = "127.0.0.1"


class Server(HTTPServer):
    """Answers one question at a time, to who has the token. ``answer``: the result of what fields say; ``fields``: what they are called,
    and what may stand in them; ``first``: what stands in them at first.

    Raises InputError where the port cannot be used.
    """

    def __init__(
        self, port: int, answer: Callable[[dict[str, str]], Document], fields: Mapping[str, tuple[str, str]], first: dict[str, str]
    ) -> None:
        try:
            super().__init__((_HERE, port), _Handler)
        except (OSError, OverflowError) as error:
            refuse("PP104", f"`--port {port}` cannot be used: {error}", help="leave it out: a port that is free is taken")
        self.answer, self.fields, self.first, self.token = answer, fields, first, secrets.token_urlsafe(24)
        self.hosts = {f"{name}:{self.server_port}" for name in (_HERE, "localhost")}

    @property
    def address(self) -> str:
        """With the token."""
        return f"http://{_HERE}:{self.server_port}/?{urlencode({'token': self.token})}"

    def page(self, asked: dict[str, str]) -> str:
        """The page of what is asked, or of what is wrong with it."""
        from placeproof.report.diagnostics import render
        from placeproof.report.document import Code, Document, section
        from placeproof.report.page import page

        form = _form(self.token, self.fields, asked)
        try:
            return page(self.answer(asked), form)
        except InputError as error:
            lines = render(error.diagnostics, error.after).splitlines()
            wrong = Document(name="error", sections=lambda: [section("this cannot be derived", Code(lines))], data=dict)
            return page(wrong, form)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = _PATIENCE
    server: Server

    def do_GET(self) -> None:
        """A page; nothing to other hosts' names, by which another site could ask, and to who has no token."""
        url = urlsplit(self.path)
        said = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if self.headers.get("Host") not in self.server.hosts:
            self._say(403, "this address is for this machine alone")
        elif not hmac.compare_digest(said.pop("token", "").encode(), self.server.token.encode()):
            self._say(403, "the address lacks the token that was printed")
        elif url.path != "/":
            self._say(404, "there is one page, /")
        else:
            asked = {name: said[name] for name in self.server.fields if name in said}
            self._say(200, self.server.page(asked or self.server.first), "text/html")

    def _say(self, status: int, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "frame-ancestors 'none'"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Nothing of what runs here."""
        return "placeproof"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged: addresses have the token."""


def _form(token: str, fields: Mapping[str, tuple[str, str]], asked: dict[str, str]) -> str:
    """What is asked, to be asked otherwise."""
    rows = "".join(
        f'<div><label for="ask-{name}">{escape(label)}</label>'
        f'<input id="ask-{name}" name="{name}" value="{escape(asked.get(name, ""))}" placeholder="{escape(example)}"></div>'
        for name, (label, example) in fields.items()
    )
    hidden = f'<input type="hidden" name="token" value="{escape(token)}">'
    return f'<form class="ask" method="get" action="/">{hidden}{rows}<button type="submit">derive</button></form>'
