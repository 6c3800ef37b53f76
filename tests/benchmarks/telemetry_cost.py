"""What does it cost to record metrics and traces, as a share of a round?"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from cluster.clock import MonotonicClock
from cluster.engine.engine import Engine
from cluster.telemetry.tracing import Tracing, pack_context
from cluster.telemetry.tracing_config import TracingConfig
from cluster.types import Request, RequestOutput, SpeculationMode, StepStats
from deployments.ray_metrics import PERIOD_S, RayMetrics
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from tests.benchmarks.measure import THREADS, Rounds, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, make_request

STREAMS = (1, 8)
LIMIT = 0.01


class EncodingExporter(SpanExporter):
    """Encodes spans as for a collector, and sends them nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What an engine did for some requests, for recording it again and again."""

    requests: tuple[Request, ...]
    steps: tuple[tuple[StepStats, tuple[RequestOutput, ...]], ...]
    round_s: float


def measure(*, quick: bool) -> Answer:
    """Let the engine work with drafts, then record the same rounds with and without traces, in turn."""
    num_rounds, max_tokens = (1, 6) if quick else (15, 96)
    return asyncio.run(_measure(num_rounds, max_tokens))


async def _measure(num_rounds: int, max_tokens: int) -> Answer:
    engine = Engine.from_config(engine_config())
    config = TracingConfig(endpoint="http://unused:4318", export_interval_s=3600.0)
    tracing = Tracing(config, component="verifier", replica="v", exporter=EncodingExporter())
    plain = VerifierCore(VerifierConfig(), lambda: engine)
    traced = VerifierCore(VerifierConfig(), lambda: engine, tracing=tracing)
    await plain.start()
    await traced.start()
    ids = count()

    def play(num_streams: int) -> Mapping[str, Sequence[float]]:
        played = _play(engine, num_streams, max_tokens, next(ids))
        return {
            _round(num_streams): [played.round_s],
            _recording(num_streams, is_traced=False): [_record(plain, played, tracing)],
            _recording(num_streams, is_traced=True): [_record(traced, played, tracing)],
        }

    rounds = interleave([partial(play, num_streams) for num_streams in STREAMS], num_rounds=num_rounds)
    copies = _copies_s(plain, num_rounds)
    await plain.stop()
    await traced.stop()
    tracing.stop()
    return _answer(engine.model_id, rounds, copies, {"rounds": num_rounds, "max_tokens": max_tokens})


def _play(engine: Engine, num_streams: int, max_tokens: int, number: int) -> Played:
    prompt = chat_ids(engine.tokenizer, PROMPTS["edit"])
    requests = tuple(
        replace(
            make_request(f"r{number}-{index}", prompt, max_tokens, mode=SpeculationMode.AUTO),
            arrival_s=MonotonicClock().now_s(),
            domain="code_synthesis",
        )
        for index in range(num_streams)
    )
    for request in requests:
        engine.add(request)
    steps = []
    while engine.has_work:
        outputs = engine.step()
        steps.append((engine.last_step, tuple(outputs)))
    # Prefills are longer than rounds that decode, and would make the share look smaller.
    decoding = [stats.duration_s for stats, _ in steps if not stats.num_prompt_tokens]
    return Played(requests=requests, steps=tuple(steps), round_s=sum(decoding) / len(decoding))


def _record(core: VerifierCore, played: Played, tracing: Tracing) -> float:
    """Seconds for recording one round, with what each request costs besides."""
    started_s = time.perf_counter()
    requests = played.requests
    if core._spans is not None:
        requests = core._spans.begin(requests, pack_context(tracing.start("gateway")))
    for request in requests:
        core._recorder.record_arrival(request.request_id, request.arrival_s)
        core._load.record_arrival(request)
    for stats, outputs in played.steps:
        core._on_step(stats, outputs)
    if core._spans is not None:
        tracing.flush()
    return (time.perf_counter() - started_s) / len(played.steps)


def _copies_s(core: VerifierCore, num_copies: int) -> list[float]:
    copy, times = RayMetrics(core.metric_sets), []
    for _ in range(num_copies + 1):
        started_s = time.perf_counter()
        copy.copy()
        times.append(time.perf_counter() - started_s)
    return times[1:]


def _answer(model: str, rounds: Rounds, copies_s: list[float], counts: dict[str, int]) -> Answer:
    rounds.add({_COPY: copies_s})
    limits = [
        Limit.at_most_of(
            f"{name} / round",
            [a / b for a, b in zip(rounds.samples(name), rounds.samples(_round(num_streams)), strict=True)],
            LIMIT,
        )
        for num_streams in STREAMS
        for name in (_recording(num_streams, is_traced=False), _recording(num_streams, is_traced=True))
    ]
    limits.append(Limit.at_most_of(f"{_COPY} / {PERIOD_S:g} s between two", [s / PERIOD_S for s in copies_s], LIMIT))
    names = [
        name
        for num_streams in STREAMS
        for name in (
            _round(num_streams),
            _recording(num_streams, is_traced=False),
            _recording(num_streams, is_traced=True),
        )
    ]
    return Answer(
        question="What does it cost to record metrics and traces, as a share of a round?",
        model=model,
        rows=tuple(Row.of(name, rounds) for name in (*names, _COPY)),
        limits=tuple(limits),
        counts=counts | {"threads": THREADS},
        notes=(
            "recording runs beside the engine's thread, in the event loop: its share of a round is the most it costs; "
            "traced: every request has a trace, whose spans are encoded but not sent",
        ),
    )


_COPY = "copy of all metrics for Ray"


def _round(num_streams: int) -> str:
    return f"round, {num_streams} stream{'s' if num_streams > 1 else ''}"


def _recording(num_streams: int, *, is_traced: bool) -> str:
    return f"recording it{', traced' if is_traced else ''}, {num_streams} stream{'s' if num_streams > 1 else ''}"
