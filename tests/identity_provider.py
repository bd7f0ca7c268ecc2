"""A stand-in for an identity provider: OpenID Connect, as far as a log-in needs it.

Whoever comes is logged in at once, as `person`.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, CLIENT_SECRET = "glassbox", "the client's secret"


class IdentityProvider:
    """Its pages, and who logs in there next."""

    def __init__(self) -> None:
        self.person: dict[str, Any] = {}
        self._key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
        self._nonces: dict[str, str] = {}  # by the code that was given out
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._configuration),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._keys),
            ]
        )

    async def _configuration(self, request: Request) -> Response:
        at = str(request.base_url).rstrip("/")
        return JSONResponse(
            {
                "issuer": at,
                "authorization_endpoint": f"{at}/authorize",
                "token_endpoint": f"{at}/token",
                "jwks_uri": f"{at}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    async def _authorize(self, request: Request) -> Response:
        asked = request.query_params
        assert asked["client_id"] == CLIENT and "openid" in asked["scope"].split()
        code = f"code-{len(self._nonces)}"
        self._nonces[code] = asked["nonce"]
        back = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}")

    async def _token(self, request: Request) -> Response:
        async with request.form() as form:
            nonce = self._nonces.pop(str(form["code"]))
        now = int(time.time())
        claims = {
            "iss": str(request.base_url).rstrip("/"),
            "aud": CLIENT,
            "iat": now,
            "exp": now + 600,
            "nonce": nonce,
            **self.person,
        }
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self._key)
        return JSONResponse(
            {"access_token": "none", "token_type": "Bearer", "expires_in": 600, "id_token": token}
        )

    async def _keys(self, request: Request) -> Response:
        return JSONResponse({"keys": [self._key.as_dict(private=False)]})
