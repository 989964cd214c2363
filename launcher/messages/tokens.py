"""The job's token as messages carry it: as a digest, never in plain text."""

import hashlib
import hmac


def digest(token: str) -> str:
    """Return the form of a token that is sent."""
    return hashlib.sha256(token.encode()).hexdigest()


def same(said: str, token_sha256: str) -> bool:
    """True if a received token is the right one; it may consist of any bytes."""
    return hmac.compare_digest(said.encode(), token_sha256.encode())
