"""What names, labels and owner references may look like."""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.kubernetes.apiserver.objects.errors import Cause

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"

_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_LABEL_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
    f"'abc-123', regex used for validation is '{_LABEL_1035}')"
)
_KEY_WORDS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_KEY}')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_VALUE}')"
)

#: (form, longest, in words) by plural; others are subdomains.
_FORMS = {
    "namespaces": (_LABEL, 63, _LABEL_WORDS),
    "services": (_LABEL_1035, 63, _LABEL_1035_WORDS),
}
_CONSONANTS = "bcdfghjklmnpqrstvwxz2456789"


def generated(prefix: str) -> str:
    """Return a name that starts with ``prefix``."""
    return prefix[:58] + "".join(secrets.choice(_CONSONANTS) for _ in range(5))


def _wrong(field: str, value: str, why: str) -> Cause:
    return Cause("FieldValueInvalid", f'Invalid value: "{value}": {why}', field)


def name_causes(plural: str, name: str) -> Iterator[Cause]:
    """Yield what is wrong with an object's name."""
    if plural.endswith("roles") or plural.endswith("rolebindings"):
        return
    form, longest, words = _FORMS.get(plural, (_SUBDOMAIN, 253, _SUBDOMAIN_WORDS))
    if len(name) > longest:
        yield _wrong("metadata.name", name, f"must be no more than {longest} characters")
    if not re.fullmatch(form, name):
        yield _wrong("metadata.name", name, words)


def label_causes(field: str, value: str) -> Iterator[Cause]:
    """Yield what is wrong with a name within a domain; none is none."""
    if len(value) > 63:
        yield _wrong(field, value, "must be no more than 63 characters")
    if value and not re.fullmatch(_LABEL, value):
        yield _wrong(field, value, _LABEL_WORDS)


def _key_causes(field: str, key: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield _wrong(field, key, f"prefix part {_SUBDOMAIN_WORDS}")
    if not re.fullmatch(_KEY, name):
        yield _wrong(field, key, _KEY_WORDS)
    elif len(name) > 63:
        yield _wrong(field, key, "name part must be no more than 63 characters")


def metadata_causes(metadata: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield what is wrong with labels, annotations and owner references."""
    for key, value in (metadata.get("labels") or {}).items():
        yield from _key_causes("metadata.labels", key)
        if len(value) > 63:
            yield _wrong("metadata.labels", value, "must be no more than 63 characters")
        elif not re.fullmatch(_VALUE, value):
            yield _wrong("metadata.labels", value, _VALUE_WORDS)
    for key in metadata.get("annotations") or {}:
        yield from _key_causes("metadata.annotations", key.lower())
    yield from _owner_causes(metadata.get("ownerReferences") or ())


def _owner_causes(references: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    for reference in references:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(field):
                where = f"metadata.ownerReferences.{field}"
                yield Cause(
                    "FieldValueInvalid", f'Invalid value: "": {field} must not be empty', where
                )
    controllers = [one for one in references if one.get("controller")]
    if len(controllers) > 1:
        names = ", ".join(f"{one.get('kind')}/{one.get('name')}" for one in controllers)
        why = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{names}"
        )
        yield Cause("FieldValueInvalid", f"Invalid value: null: {why}", "metadata.ownerReferences")


def finalizer_causes(
    before: Mapping[str, Any], after: Mapping[str, Any], custom: bool
) -> Iterator[Cause]:
    """Yield what is wrong with finalizers that come while the object goes."""
    if "deletionTimestamp" not in before:
        return
    old = before.get("finalizers") or ()
    new = [one for one in after.get("finalizers") or () if one not in old]
    if new:
        told = ", ".join(f'"{one}"' for one in new)
        message = (
            "Forbidden: no new finalizers can be added if the object is being deleted, found new "
            f"finalizers []string{{{told}}}"
        )
        # A real server finds this twice in custom resources.
        yield from [Cause("FieldValueForbidden", message, "metadata.finalizers")] * (1 + custom)
