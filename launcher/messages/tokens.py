"""The job's token in messages, which contain the token's digest and never its plain text."""

import hashlib
import hmac


def digest(token: str) -> str:
    """Return the SHA-256 of a token as hexadecimal digits."""
    return hashlib.sha256(token.encode()).hexdigest()


def same(said: str, token_sha256: str) -> bool:
    """True if the token ``said``, which may be any text, has this digest; takes constant time."""
    return hmac.compare_digest(said.encode(), token_sha256.encode())
