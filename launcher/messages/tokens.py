"""The job's token as messages carry it: as a digest, never in plain text."""

import hashlib
import hmac


def digest(token: str) -> str:
    """Return the form of a token that is sent on the wire."""
    return hashlib.sha256(token.encode()).hexdigest()


def same(said: str, token_sha256: str) -> bool:
    """True if a received token is the right one, whatever bytes it consists of."""
    return hmac.compare_digest(said.encode(), token_sha256.encode())
