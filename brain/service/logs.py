"""Lines of the log: text for people, or a JSON object per line for programs."""

import json
import logging
import sys
from datetime import UTC, datetime

from opentelemetry import trace

from brain.api.app import REQUESTS
from brain.api.problems import REQUEST_ID
from brain.settings import Settings

#: Logger of the lines that tell how the service started; text of them has no time.
STARTS = logging.getLogger("brain.start")
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
#: Attributes of every record; others were given with its message.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message"}
#: Least seconds between two lines of OpenTelemetry's SDK from one place: a collector may be away
#: for days, and the SDK reports each attempt.
_SDK_SECONDS = 60.0


class Correlating(logging.Filter):
    """Adds to a log record the id of the request, and the ids of its trace and span if it has
    any.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        ids = {"request_id": REQUEST_ID.get()} if REQUEST_ID.get() else {}
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            ids["trace_id"] = trace.format_trace_id(span.trace_id)
            ids["span_id"] = trace.format_span_id(span.span_id)
        for name, id in ids.items():
            vars(record).setdefault(name, id)
        return True


class SeldomFromSdk(logging.Filter):
    """Drops messages that OpenTelemetry's SDK repeats within a minute."""

    def __init__(self) -> None:
        super().__init__()
        #: Time of the last line from each place in the SDK.
        self._last: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a record to drop."""
        if not record.name.startswith("opentelemetry."):
            return True
        place = record.pathname, record.lineno
        if record.created - self._last.get(place, -_SDK_SECONDS) < _SDK_SECONDS:
            return False
        self._last[place] = record.created
        return True


class TextFormatter(logging.Formatter):
    """Formats a record as a line for people, with the id of its request."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without the traceback; a traceback, if there is one, is appended after
        this line.
        """
        id = getattr(record, "request_id", "")
        return super().formatMessage(record) + (f" (request {id})" if id else "")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with the additional fields that the logging call
    passed.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def set_up(settings: Settings) -> None:
    """Write the log of this process to standard error, in the format of ``log_format``."""
    is_json = settings.log_format == "json"
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter(_TEXT))
    handler.addFilter(SeldomFromSdk())
    handler.addFilter(Correlating())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # It warns of whatever a stranger sends that is no HTTP, which would fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # Text is what a person sees who starts the service; standard output is not the log.
    start = logging.StreamHandler(sys.stdout)
    start.setFormatter(JsonFormatter() if is_json else logging.Formatter())
    STARTS.handlers, STARTS.propagate = [start], False
    # A line for each request is for programs that search them.
    REQUESTS.setLevel(logging.INFO if is_json else logging.WARNING)
