"""Polls Brain for the requests that Brain relays to a pool's scaler, and answers these requests."""

import logging
import threading
from collections.abc import Callable

from brain import calls, errors
from brain.errors import BrainError
from brain.types.job import JobId
from brain.views import (
    LogsRequest,
    PodRequest,
    PodSeen,
    RelayedError,
    ScalerAnswer,
    ScalerRequest,
    SubmitRequest,
)
from scaler.kubernetes.brain import BrainPort

log = logging.getLogger(__name__)

_POLL_SECONDS = 20.0
#: Seconds between attempts while Brain cannot be reached.
_RETRY_SECONDS = 2.0


class _Unread(Exception):
    """The requester no longer waits for the answer."""


class RelayedRequests:
    """Answers relayed requests, each on a separate thread."""

    def __init__(
        self,
        client: BrainPort,
        pool: str,
        *,
        submit: Callable[[SubmitRequest], JobId | None],
        logs: Callable[[LogsRequest, Callable[[str, bool], None]], None],
        pod: Callable[[PodRequest], PodSeen],
    ) -> None:
        self._client, self._pool = client, pool
        self._submit, self._logs, self._pod = submit, logs, pod

    def follow(self, stop: threading.Event) -> None:
        """Take requests until ``stop`` is set."""
        while not stop.is_set():
            try:
                page = self._client.send(
                    calls.scaler_requests(self._pool, wait_seconds=_POLL_SECONDS)
                )
            except BrainError as why:
                log.info("cannot poll Brain for requests to pool %s: %s", self._pool, why)
                stop.wait(_RETRY_SECONDS)
                continue
            except Exception:
                # Without this thread no request would ever be answered again.
                log.exception("cannot poll Brain for requests to pool %s", self._pool)
                stop.wait(_RETRY_SECONDS)
                continue
            for each in page.items:
                threading.Thread(target=self._answer, args=(each,), daemon=True).start()

    def _answer(self, request: ScalerRequest) -> None:
        def send(answer: ScalerAnswer) -> None:
            try:
                self._client.send(calls.answer_request(self._pool, request.id, answer))
            except BrainError as why:
                log.info("request %s: %s", request.id, why)
                raise _Unread from why

        try:
            if request.submit is not None:
                send(ScalerAnswer(job=self._submit(request.submit)))
            elif request.logs is not None:
                self._logs(
                    request.logs, lambda text, more: send(ScalerAnswer(text=text, more=more))
                )
            elif request.pod is not None:
                send(ScalerAnswer(pod=self._pod(request.pod)))
            else:
                raise errors.BadInput(
                    "this operator does not know requests of this kind; upgrade the operator"
                )
        except _Unread:
            return
        except BrainError as why:
            self._refuse(request, why, send)
        except Exception:
            log.exception("request %s", request.id)
            failed = errors.Unavailable("the scaler failed; its log has the reason")
            self._refuse(request, failed, send)

    def _refuse(
        self, request: ScalerRequest, why: BrainError, send: Callable[[ScalerAnswer], None]
    ) -> None:
        field = why.field if isinstance(why, errors.BadInput) else None
        try:
            send(ScalerAnswer(refusal=RelayedError(kind=_kind(why), detail=str(why), field=field)))
        except _Unread:
            log.info(
                "request %s was refused, but Brain did not get the refusal: %s", request.id, why
            )


def _kind(why: BrainError) -> str:
    """Return the name of the error's class, or of its nearest base class in ``brain.errors``."""
    return next(kind.__name__ for kind in type(why).__mro__ if hasattr(errors, kind.__name__))
