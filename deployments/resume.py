"""One request over the verifiers that it takes: where a replica is lost, another one goes on from the tokens that came.

The tokens that a client has seen are all that has to survive: text is a function of logits, seed and output index, so
any replica continues it (`Request.output_token_ids`). Nothing is remembered outside the gateway that holds the
connection.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import msgspec

from cluster.clock import Clock
from cluster.errors import DeadlineError, OverloadedError, RequestError, UnavailableError
from cluster.types import Request, Role
from deployments import wire
from deployments.client import VerifierClient
from deployments.pump import Pump

logger = logging.getLogger(__name__)

DEADLINE_GRACE_S = 2.0
"""The verifier ends a choice at its deadline; the gateway waits this much longer for its word."""

RESUME_WAIT_S = 120.0
"""How long a request waits for a replica that goes on with it; a lone verifier is started anew within this, or not."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 3.0
"""Between attempts that brought nothing; doubled each time."""

CHECK_S = 2.5
"""How often a call without a word is looked after."""

LOSSES = frozenset({"replica_lost", "replica_silent", "engine_dead", "incomplete"})
"""Codes of errors that cost a request its replica: each counts against `max_resumes`."""

REFUSALS = frozenset({"no_engine", "version_mismatch", "model_mismatch"})
"""Codes of a replica that cannot serve anybody, and that Serve is about to replace: the request was never there."""

BEAT = wire.Batch(())
"""Stands for nothing in so long a time that the client should hear that the request is alive."""


@dataclass(slots=True)
class _Search:
    """From the loss of a replica to the first word of the next one."""

    reason: str
    until_s: float
    num_attempts: int = 0

    def pause_s(self) -> float:
        """How long to wait before the next attempt; the first follows at once."""
        self.num_attempts += 1
        if self.num_attempts == 1:
            return 0.0
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.num_attempts - 2)))


@dataclass(slots=True, kw_only=True)
class ResumingCall:
    """The choices of one request.

    Args:
        requests: one per choice.
        pool: where they should go.
        client: the verifiers.
        clock: for deadlines and limits.
        timeout_s: seconds until the deadline, or None.
        beat_s: after so long without an item, `batches` yields an empty one.
        max_resumes: how many replicas the request may lose; 0 passes every error on.
        on_resume: told (reason, "resumed") when another replica goes on, (reason, "gave_up") when none does.
        trace: goes along with every call.
        model: fingerprint of the model that the requests are for.
    """

    requests: tuple[Request, ...]
    pool: Role
    client: VerifierClient
    clock: Clock
    timeout_s: float | None
    beat_s: float
    max_resumes: int
    on_resume: Callable[[str, str], None]
    trace: bytes = b""
    model: str = ""
    _deadline_s: float | None = field(init=False)
    _output: list[list[int]] = field(init=False)
    _open: list[int] = field(init=False)
    _search: _Search | None = field(init=False, default=None)
    _last_s: float = field(init=False)
    _num_calls: int = field(init=False, default=0)
    _num_losses: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Start the clock; nothing is sent before the first item is asked for."""
        self._last_s = self.clock.now_s()
        self._deadline_s = None if self.timeout_s is None else self._last_s + self.timeout_s
        self._output = [[] for _ in self.requests]
        self._open = list(range(len(self.requests)))

    async def batches(self) -> AsyncGenerator[wire.Batch, None]:
        """Stream items, until every choice has ended; closing the generator aborts what runs.

        Raises:
            RequestError: the request failed, and no other replica can help.
        """
        while self._open:
            try:
                async with aclosing(self._attempt()) as attempt:
                    async for batch in attempt:
                        yield batch
            except RequestError as error:
                await self._recover(error)

    async def _attempt(self) -> AsyncGenerator[wire.Batch, None]:
        """What one replica brings to the choices that are open."""
        indices, call = tuple(self._open), self._call()
        pump = Pump(self.client.generate(call, pool=self.pool))
        try:
            while (batch := await self._next(pump, call.call_id)) is not None:
                if batch is not BEAT:
                    self._found()
                    batch = self._take(batch, indices)
                self._last_s = self.clock.now_s()
                yield batch
        finally:
            await pump.close()
        if self._open:
            raise UnavailableError("the answer ended early; try again", code="incomplete")

    def _call(self) -> wire.GenerateCall:
        left_s = None if self._deadline_s is None else max(0.0, self._deadline_s - self.clock.now_s())
        requests = tuple(self._request(index) for index in self._open)
        self._num_calls += 1
        return wire.GenerateCall(requests=requests, timeout_s=left_s, trace=self.trace, model=self.model)

    def _request(self, index: int) -> Request:
        """The request of a choice, with what was brought before."""
        request, output = self.requests[index], tuple(self._output[index])
        if self._num_calls:
            # An abort of the earlier attempt, wherever it still runs, must not hit this one.
            request = replace(request, request_id=f"{request.request_id}.{self._num_calls}", output_token_ids=output)
        if output and request.sampling.prompt_logprobs is not None:
            request = replace(request, sampling=replace(request.sampling, prompt_logprobs=None))
        return request

    async def _next(self, pump: Pump[bytes], call_id: str) -> wire.Batch | None:
        """The next item of an attempt, or `BEAT`; None at its end."""
        while True:
            try:
                data = await pump.next(self._wait_s())
            except TimeoutError:
                self._check(call_id)
                if self.clock.now_s() >= self._last_s + self.beat_s:
                    return BEAT
                continue
            if data is None:
                return None
            batch = wire.decode_batch(data)
            if batch.failure is not None:
                raise wire.error_of(batch.failure)
            return batch

    def _wait_s(self) -> float:
        """How long to wait for an item before something else is due."""
        now_s = self.clock.now_s()
        due_s = [now_s + CHECK_S, self._last_s + self.beat_s]
        if self._deadline_s is not None:
            due_s.append(self._deadline_s + DEADLINE_GRACE_S)
        if self._search is not None:
            due_s.append(self._search.until_s)
        return max(0.0, min(due_s) - now_s)

    def _check(self, call_id: str) -> None:
        """Raise if it is no use to wait on."""
        now_s = self.clock.now_s()
        if self._deadline_s is not None and now_s >= self._deadline_s + DEADLINE_GRACE_S:
            raise DeadlineError("the deadline passed before the answer was finished")
        if self._search is not None and now_s >= self._search.until_s:
            raise UnavailableError("no replica could go on with the request; try again", code="no_replica")
        if self.client.has_lost(call_id):
            raise UnavailableError("no replica could finish the request; try again", code="replica_silent")

    def _take(self, batch: wire.Batch, indices: tuple[int, ...]) -> wire.Batch:
        """Note what an item brings; the same item by the request's own indices."""
        deltas = []
        for delta in batch.deltas:
            index = indices[delta.index]
            self._output[index] += delta.token_ids
            if delta.finish_reason is not None:
                self._open.remove(index)
            deltas.append(delta if index == delta.index else msgspec.structs.replace(delta, index=index))
        return wire.Batch(tuple(deltas))

    def _found(self) -> None:
        if self._search is not None:
            self.on_resume(self._search.reason, "resumed")
            self._search = None

    async def _recover(self, error: RequestError) -> None:
        """Pause before the next attempt; raise the error where there is none."""
        is_loss = error.code in LOSSES
        is_wait = self._search is not None and isinstance(error, OverloadedError | UnavailableError)
        if not (is_loss or is_wait or error.code in REFUSALS):
            raise error
        self._num_losses += is_loss
        now_s = self.clock.now_s()
        if self._search is None:
            self._search = _Search(error.code or "", now_s + RESUME_WAIT_S)
        search, pause_s = self._search, self._search.pause_s()
        is_over = self.max_resumes == 0 or self._num_losses > self.max_resumes or now_s + pause_s >= search.until_s
        logger.warning("%s: %s (%s)", self.requests[0].request_id, error.message, error.code)
        if is_over:
            self.on_resume(search.reason, "gave_up")
            raise error
        if self._deadline_s is not None and now_s + pause_s >= self._deadline_s:
            raise DeadlineError("the deadline passed before the answer was finished")
        await asyncio.sleep(pause_s)
