"""Running a job: whole answers, event streams, deadlines, keep-alives, and what happens when either side goes away."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from cluster.clock import Clock
from cluster.errors import DeadlineError, RequestError
from deployments import sse, wire
from deployments.client import VerifierClient
from deployments.codec import TextCodec
from deployments.logprob_format import chat_logprobs, completion_logprobs
from deployments.prepare import Job
from deployments.responses import Choice, Timing, metrics, response_head, usage

DEADLINE_GRACE_S = 2.0
"""The verifier ends a choice at its deadline; the gateway waits this much longer for its word."""


_KEEP_ALIVE = wire.Batch(())


class Pump:
    """Reads stream items with a time limit that does not disturb the stream.

    Args:
        stream: encoded items; closed by `close`.
    """

    def __init__(self, stream: AsyncGenerator[bytes, None]) -> None:
        self._stream = stream
        self._next: asyncio.Task[bytes | None] | None = None

    async def next(self, timeout_s: float | None = None) -> wire.Batch | None:
        """The next item; None at the end.

        Raises:
            TimeoutError: nothing came in time; the item is not lost.
            RequestError: the call failed.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._read())
        done, _ = await asyncio.wait({self._next}, timeout=timeout_s)
        if not done:
            raise TimeoutError
        task, self._next = self._next, None
        data = task.result()
        if data is None:
            return None
        batch = wire.decode_batch(data)
        if batch.failure is not None:
            raise wire.error_of(batch.failure)
        return batch

    async def close(self) -> None:
        """Close the stream; if it has not ended, that aborts the call."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
            self._next = None
        await self._stream.aclose()

    async def _read(self) -> bytes | None:
        return await anext(self._stream, None)


@dataclass(slots=True, kw_only=True)
class Generation:
    """One job on its way.

    Args:
        job: what to do.
        client: the verifiers.
        codec: for logprobs.
        clock: for deadlines and timing.
        timeout_s: seconds until the deadline, or None.
        keep_alive_s: idle time after which a stream carries a comment.
    """

    job: Job
    client: VerifierClient
    codec: TextCodec
    clock: Clock
    timeout_s: float | None
    keep_alive_s: float
    choices: list[Choice] = field(init=False)
    timing: Timing = field(init=False)
    _pump: Pump = field(init=False)
    _deadline_s: float | None = field(init=False)

    def __post_init__(self) -> None:
        """Send the call; the verifier sees it when the first item is asked for."""
        now_s = self.clock.now_s()
        self.choices = [Choice(index) for index in range(len(self.job.requests))]
        self.timing = Timing(start_s=now_s)
        self._deadline_s = None if self.timeout_s is None else now_s + self.timeout_s + DEADLINE_GRACE_S
        call = wire.GenerateCall(requests=self.job.requests, timeout_s=self.timeout_s)
        self._pump = Pump(self.client.generate(call, pool=self.job.route.pool))

    async def collect(self) -> list[Choice]:
        """All choices, whole.

        Raises:
            RequestError: the request failed; nothing was sent.
        """
        try:
            while (batch := await self._next(None)) is not None:
                for delta in batch.deltas:
                    self.choices[delta.index].add(delta)
        finally:
            await self._pump.close()
        self._check_complete()
        return self.choices

    async def first(self) -> wire.Batch | None:
        """The first item of a stream, or None when it takes longer than a keep-alive: the answer must begin then.

        Raises:
            RequestError: the request failed; nothing was sent yet, so the status can still say so.
        """
        try:
            batch = await self._next(self.keep_alive_s)
            if batch is not None:
                _check_ends(batch)
            return batch
        except TimeoutError:
            return None
        except BaseException:
            await self._pump.close()
            raise

    async def events(self, first: wire.Batch | None) -> AsyncGenerator[bytes, None]:
        """The events of a streamed answer, `[DONE]` included; closing the generator aborts the request."""
        job = self.job
        kind = "chat.completion.chunk" if job.is_chat else "text_completion"
        null_usage = job.include_usage and not job.continuous_usage
        writer = sse.ChunkWriter(response_head(job, kind), is_chat=job.is_chat, null_usage=null_usage)
        try:
            roles = b"".join(writer.role(index) for index in range(len(self.choices))) if job.is_chat else b""
            batch: wire.Batch | None = first or _KEEP_ALIVE
            while batch is not None:
                events = b"".join(self._event(writer, delta) for delta in batch.deltas)
                # The role goes out together with what comes first: each item costs a hop.
                if item := roles + (events if batch.deltas else sse.KEEP_ALIVE):
                    yield item
                roles, batch = b"", await self._wait()
            self._check_complete()
            if job.include_usage:
                yield writer.usage(usage(job, self.choices), metrics(job, self.choices, self.timing))
            yield sse.DONE
        except RequestError as error:
            yield sse.error_events(error)
        finally:
            await self._pump.close()

    async def close(self) -> None:
        """End the call; if it has not ended by itself, that aborts it."""
        await self._pump.close()

    async def _wait(self) -> wire.Batch | None:
        """The next item; an empty batch stands for a keep-alive."""
        try:
            return await self._next(self.keep_alive_s)
        except TimeoutError:
            return _KEEP_ALIVE

    async def _next(self, timeout_s: float | None) -> wire.Batch | None:
        left_s = None if self._deadline_s is None else max(0.0, self._deadline_s - self.clock.now_s())
        wait_s = min((value for value in (timeout_s, left_s) if value is not None), default=None)
        try:
            batch = await self._pump.next(wait_s)
        except TimeoutError:
            if left_s is not None and wait_s == left_s:
                raise DeadlineError("the deadline passed before the answer was finished") from None
            raise
        if batch is not None:
            self.timing.end_s = self.clock.now_s()
            if self.timing.first_s is None:
                self.timing.first_s = self.timing.end_s
        return batch

    def _event(self, writer: sse.ChunkWriter, delta: wire.Delta) -> bytes:
        """Chunks for one delta; nothing if the delta says nothing."""
        job, choice = self.job, self.choices[delta.index]
        begins = choice.num_output_tokens == 0
        echo = job.echo_of(delta.index) if begins else ""
        text = echo + ("" if job.drop_output else delta.text)
        extra = self._extra(delta, choice, len(echo))
        choice.add(delta, keep=False)
        if job.logprobs:
            choice.texts.append(echo + "".join(self.codec.token_text(token_id)[0] for token_id in delta.token_ids))
        continuous = usage(job, self.choices) if job.continuous_usage else None
        if delta.finish_reason is None:
            if not text and not extra:
                return b""
            return writer.content(delta.index, text, usage=continuous, **extra)
        root = {} if job.include_usage else metrics(job, self.choices, self.timing)
        reason, stop = delta.finish_reason.value, delta.stop_reason
        return writer.finish(delta.index, text, reason=reason, stop_reason=stop, usage=continuous, root=root, **extra)

    def _extra(self, delta: wire.Delta, choice: Choice, num_echo_chars: int) -> dict[str, object]:
        extra: dict[str, object] = {"token_ids": list(delta.token_ids)} if self.job.return_token_ids else {}
        if delta.logprobs and self.job.logprobs:
            entries = [wire.unpack_logprobs(entry) for entry in delta.logprobs]
            if self.job.is_chat:
                return extra | {"logprobs": chat_logprobs(entries, self.codec)}
            offset = sum(map(len, choice.texts)) + num_echo_chars
            return extra | {"logprobs": completion_logprobs(entries, delta.token_ids, self.codec, offset=offset)}
        return extra

    def _check_complete(self) -> None:
        if any(choice.finish_reason is None for choice in self.choices):
            raise RequestError("the answer ended early", code="incomplete")


def _check_ends(batch: wire.Batch) -> None:
    """Raise what a first item says about choices that ended without an answer."""
    for delta in batch.deltas:
        Choice(delta.index).add(delta, keep=False)
