"""Structured logs: one JSON object per line, with request ids, never with prompts or texts."""

import json
import logging
import sys
import time

LOGGER_NAMES = ("cluster", "deployments")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; `extra={"fields": {...}}` is merged in."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: int = logging.INFO) -> None:
    """Send our own loggers to standard error as JSON; other libraries' logging is left as it is."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in LOGGER_NAMES:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
