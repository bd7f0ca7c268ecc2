"""What every answer tells a browser: what it may do with it, and nothing about who asked.

Box `client-req`, its other end. No counterpart in vLLM, which has no page.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Answers that are no page load, run and embed nothing, should somebody open one as if it were.
DATA_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# A page, and the scripts that may begin a worker, which has the policy of its own answer.
PAGE_TYPES = ("text/html", "text/javascript", "application/javascript")
UNUSED = (  # of what a page could ask for; copying to the clipboard is left to it
    "accelerometer",
    "browsing-topics",
    "camera",
    "display-capture",
    "geolocation",
    "gyroscope",
    "hid",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "publickey-credentials-get",
    "serial",
    "usb",
    "xr-spatial-tracking",
)

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # A page's address names what is looked at; it goes nowhere.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{name}=()" for name in UNUSED),
}


class SecurityHeaders:
    """Every answer says what a browser may do with it."""

    def __init__(self, app: ASGIApp, content_security_policy: str):
        self.app = app
        self.page_policy = content_security_policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with the headers added to the answer."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                kind = headers.get("content-type", "").partition(";")[0].strip().lower()
                page = kind in PAGE_TYPES
                policy = self.page_policy if page else DATA_POLICY
                # A 304 has no type, and what it says replaces what the browser keeps of the page.
                if message["status"] != 304:
                    headers["Content-Security-Policy"] = policy
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                # Nobody's page reads from here but our own (Streamlit would let some addresses).
                del headers["Access-Control-Allow-Origin"]
                if scope["path"].startswith("/assets/"):
                    headers["Cache-Control"] = "no-cache"
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)
