"""The grammar of filters in REST, in the command line's ``--filter`` and in the UI's URL.

    filter = term *(" " term)              all terms must match
    term   = key ":" value *("," value)    one of the values, ignoring case
           | word                          a part of the name or id, ignoring case

``state:Running,Queued project:vision owner:me digits``. A value with spaces needs
quotes: ``owner:"Ada L."``. ``me`` is the principal of the request. An unknown key or state is
refused.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from brain.errors import BadInput
from brain.spelling import meant
from brain.types.job import Job, JobState

#: Keys by which a list can be filtered, each with its allowed values; None allows any value.
Keys = Mapping[str, frozenset[str] | None]


JOB_KEYS: Keys = {
    "state": frozenset(JobState),
    "project": None,
    "owner": None,
    "pool": None,
    "mode": frozenset({"off", "shadow", "approve", "auto"}),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter; all its text is lower case."""

    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def matches(self, row: Mapping[str, str], text: str) -> bool:
        """True if a row matches this filter.

        ``row`` maps each key of the grammar to the row's value; ``text`` is searched for the words.
        """
        return all(row[key].lower() in some for key, some in self.values.items()) and all(
            word in text.lower() for word in self.words
        )


def parse_filter(text: str, keys: Keys, *, me: str = "") -> Filter:
    """Parse a filter.

    Raises:
        BadInput: a quote is not closed, a key is unknown or followed by ``=``, or the key's value
            is not one of the allowed values.

    >>> parse_filter("state:Running,queued dig", {"state": frozenset({"Running", "Queued"})}).words
    ('dig',)
    """
    try:
        terms = shlex.split(text)
    except ValueError as bad:
        raise BadInput(f"filter {text!r}: {bad}; close the quote", field="filter") from bad
    values: dict[str, frozenset[str]] = {}
    words: list[str] = []
    for term in terms:
        key, colon, rest = term.partition(":")
        if not colon:
            asked, equals, value = term.partition("=")
            if equals and asked in keys:
                remedy = f"write {asked}:{value}, with a colon"
                raise BadInput(
                    f"filter: {term!r} contains =, which no name contains; {remedy}", field="filter"
                )
            words.append(term.lower())
            continue
        if key not in keys:
            raise BadInput(
                f"filter: the key {key!r} does not exist; choose one of {', '.join(keys)}",
                field="filter",
            )
        some = frozenset(_checked(key, one, keys[key], me) for one in rest.split(",") if one)
        values[key] = values.get(key, some) & some
    return Filter(values, tuple(words))


def job_matches(job: Job, wanted: Filter, default_mode: str) -> bool:
    """True if a job matches a filter of ``JOB_KEYS``.

    ``default_mode`` is the policy mode of jobs whose document does not set a mode.
    """
    document = job.document
    row = {
        "state": job.state,
        "project": document.project,
        "owner": job.owner,
        "pool": job.pool,
        "mode": document.policy.mode or default_mode,
    }
    return wanted.matches(row, f"{document.name} {job.id}")


def _checked(key: str, value: str, allowed: frozenset[str] | None, me: str) -> str:
    if key == "owner" and value == "me":
        return me.lower()
    if allowed is None or value.lower() in {one.lower() for one in allowed}:
        return value.lower()
    near = meant(value, sorted(allowed))
    hint = f"did you mean {near}?" if near else f"known: {', '.join(sorted(allowed))}"
    raise BadInput(f"filter: {key} {value!r} is not a known value; {hint}", field="filter")
