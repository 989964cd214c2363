"""Lines of the log: text for people, or one JSON object each for programs."""

import json
import logging
from datetime import UTC, datetime

from brain.api.app import REQUESTS
from brain.api.problems import REQUEST_ID
from brain.settings import Settings

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
#: Attributes of every record; others were given with its message.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message"}


class Correlating(logging.Filter):
    """Adds the id of the request to a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record."""
        if id := REQUEST_ID.get():
            vars(record).setdefault("request_id", id)
        return True


class TextFormatter(logging.Formatter):
    """A record as a line for people, with the id of its request."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, before any traceback."""
        id = getattr(record, "request_id", "")
        return super().formatMessage(record) + (f" (request {id})" if id else "")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON, with the fields that were given with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
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
    handler.addFilter(Correlating())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # It warns of whatever a stranger sends that is no HTTP, which would fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # A line for each request is for programs that search them.
    REQUESTS.setLevel(logging.INFO if is_json else logging.WARNING)
