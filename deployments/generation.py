"""Running a job: whole answers, event streams, keep-alives, and what happens when either side goes away."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.clock import Clock
from cluster.errors import RequestError
from deployments import sse, wire
from deployments.client import VerifierClient
from deployments.codec import TextCodec
from deployments.logprob_format import chat_logprobs, completion_logprobs
from deployments.prepare import Job
from deployments.responses import Choice, Timing, finish_reason, metrics, response_head, usage
from deployments.resume import ResumingCall
from deployments.tool_calls.answer import Piece, ToolAnswer

if TYPE_CHECKING:
    from deployments.request_span import RequestSpan


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
        max_resumes: how many replicas the request may lose.
        model: fingerprint of the model that the job is for.
        is_padded: a streamed answer's chunks hide their sizes.
        on_resume: told why another replica went on, or none, and which of both.
        span: of the request's trace; None where there is none.
    """

    job: Job
    client: VerifierClient
    codec: TextCodec
    clock: Clock
    timeout_s: float | None
    keep_alive_s: float
    max_resumes: int
    on_resume: Callable[[str, str], None]
    span: "RequestSpan | None" = None
    is_padded: bool = False
    model: str = ""
    choices: list[Choice] = field(init=False)
    timing: Timing = field(init=False)
    _answers: list[ToolAnswer] = field(init=False)
    _batches: AsyncGenerator[wire.Batch, None] = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the call; the verifier sees it when the first item is asked for."""
        self.choices = [Choice(index) for index in range(len(self.job.requests))]
        self.timing = Timing(start_s=self.clock.now_s())
        tools = self.job.tools
        self._answers = [] if tools is None else [ToolAnswer(tools, each.request_id) for each in self.job.requests]
        call = ResumingCall(
            requests=self.job.requests,
            pool=self.job.route.pool,
            client=self.client,
            clock=self.clock,
            timeout_s=self.timeout_s,
            beat_s=self.keep_alive_s,
            max_resumes=self.max_resumes,
            on_resume=self._note_resume,
            trace=b"" if self.span is None else self.span.trace,
            model=self.model,
        )
        self._batches = call.batches()

    async def collect(self) -> list[Choice]:
        """All choices, whole.

        Raises:
            RequestError: the request failed; nothing was sent.
        """
        try:
            while (batch := await self._next()) is not None:
                for delta in batch.deltas:
                    self.choices[delta.index].add(delta)
        finally:
            await self.close()
        return self.choices

    async def first(self) -> wire.Batch | None:
        """The first item of a stream; an empty one when it takes longer than a keep-alive: the answer must begin then.

        Raises:
            RequestError: the request failed; nothing was sent yet, so the status can still say so.
        """
        try:
            batch = await self._next()
            if batch is not None:
                _check_ends(batch)
            return batch
        except BaseException:
            await self.close()
            raise

    async def events(self, first: wire.Batch | None) -> AsyncGenerator[bytes, None]:
        """The events of a streamed answer, `[DONE]` included; closing the generator aborts the request."""
        job = self.job
        kind = "chat.completion.chunk" if job.is_chat else "text_completion"
        null_usage = job.include_usage and not job.continuous_usage
        head, pads = response_head(job, kind), self.is_padded
        writer = sse.ChunkWriter(head, is_chat=job.is_chat, null_usage=null_usage, is_padded=pads)
        try:
            roles = b"".join(writer.role(index) for index in range(len(self.choices))) if job.is_chat else b""
            batch = first
            while batch is not None:
                events = b"".join(self._event(writer, delta) for delta in batch.deltas)
                # The role goes out together with what comes first: each item costs a hop.
                if item := roles + (events if batch.deltas else sse.KEEP_ALIVE):
                    yield item
                roles, batch = b"", await self._next()
            if job.include_usage:
                yield writer.usage(usage(job, self.choices), metrics(job, self.choices, self.timing))
            yield sse.DONE
        except RequestError as error:
            if self.span is not None:
                self.span.note_error(error)
            yield sse.error_events(error)
        finally:
            await self.close()

    async def close(self) -> None:
        """End the call; if it has not ended by itself, that aborts it."""
        await self._batches.aclose()

    def _note_resume(self, reason: str, result: str) -> None:
        self.on_resume(reason, result)
        if self.span is not None:
            self.span.note_resume(reason, result)

    async def _next(self) -> wire.Batch | None:
        """The next item; an empty one stands for a keep-alive."""
        batch = await anext(self._batches, None)
        if batch is not None and batch.deltas:
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
        if self.span is not None:
            self.span.note_text(delta.index, text)
        extra = self._extra(delta, choice, len(echo))
        choice.add(delta, keep=False)
        if job.logprobs:
            choice.texts.append(echo + "".join(self.codec.token_text(token_id)[0] for token_id in delta.token_ids))
        continuous = usage(job, self.choices) if job.continuous_usage else None
        piece, num_calls = self._piece(delta, text)
        if delta.finish_reason is None:
            if not piece.content and not piece.calls and not extra:
                return b""
            return writer.content(delta.index, piece.content, calls=piece.calls, usage=continuous, **extra)
        return writer.finish(
            delta.index,
            piece.content,
            calls=piece.calls,
            reason=finish_reason(delta.finish_reason, num_calls=num_calls),
            stop_reason=delta.stop_reason,
            usage=continuous,
            root={} if job.include_usage else metrics(job, self.choices, self.timing),
            **extra,
        )

    def _piece(self, delta: wire.Delta, text: str) -> tuple[Piece, int]:
        """What a delta's text comes to where tools may be called, and the calls so far."""
        if not self._answers:
            return Piece(content=text), 0
        answer = self._answers[delta.index]
        return answer.feed(text, is_last=delta.finish_reason is not None), answer.num_calls

    def _extra(self, delta: wire.Delta, choice: Choice, num_echo_chars: int) -> dict[str, object]:
        extra: dict[str, object] = {"token_ids": list(delta.token_ids)} if self.job.return_token_ids else {}
        if delta.logprobs and self.job.logprobs:
            entries = [wire.unpack_logprobs(entry) for entry in delta.logprobs]
            if self.job.is_chat:
                return extra | {"logprobs": chat_logprobs(entries, self.codec)}
            offset = sum(map(len, choice.texts)) + num_echo_chars
            return extra | {"logprobs": completion_logprobs(entries, delta.token_ids, self.codec, offset=offset)}
        return extra


def _check_ends(batch: wire.Batch) -> None:
    """Raise what a first item says about choices that ended without an answer."""
    for delta in batch.deltas:
        Choice(delta.index).add(delta, keep=False)
