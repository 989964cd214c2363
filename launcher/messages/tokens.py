"""The job's token as messages carry it: never itself."""

import hashlib
import hmac


def digest(token: str) -> str:
    """The form of a token that goes over the wire."""
    return hashlib.sha256(token.encode()).hexdigest()


def same(said: str, token_sha256: str) -> bool:
    """True if a token that came over the wire is the right one, whatever it consists of."""
    return hmac.compare_digest(said.encode(), token_sha256.encode())
