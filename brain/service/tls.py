"""TLS of the service's own listener."""

import ssl

from brain.errors import BadInput
from brain.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context that the settings describe; None if the service serves plain HTTP.

    Raises:
        BadInput: the certificate cannot be read, or its key is missing or does not match.
    """
    if not settings.tls_certificate:
        if settings.tls_key:
            raise BadInput(
                "tls_key is set without a certificate; set tls_certificate too",
                field="tls_certificate",
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(
            settings.tls_certificate, settings.tls_key or None, password=lambda: ""
        )
    except (OSError, ssl.SSLError) as bad:
        raise BadInput(
            f"tls_certificate {settings.tls_certificate} with tls_key "
            f"{settings.tls_key or settings.tls_certificate}: {bad}; name a readable "
            "certificate chain and its key, both in PEM",
            field="tls_certificate",
        ) from bad
    return context
