"""Is automatic speculation ever slower than the best fixed setting? One engine, one run, settings interleaved.

Fixed settings draft K tokens wherever a drafter has so many, as other engines do; `auto` verifies what pays by its
measured step times and acceptance. Texts are the same under every setting. Drafts come from prompt lookup and from the
draft model in the same process.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median

from autoscaling.report import line_chart
from cluster.config import BUNDLED, DraftConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.collect import Drafting
from cluster.engine.drafters.draft_build import build_draft_beside
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.drafters.step_cost import TableCost
from cluster.engine.engine import Engine
from cluster.engine.startup import load_parts, measure_draft_cost, measure_pass_times
from cluster.types import Request, SamplingParams
from deployments.calibrate_prompts import workload_prompt
from tests.benchmarks.measure import SETTLE_S, THREADS, Rounds, progress, warmed_up
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import engine_config

STREAMS = (1, 2, 4, 8, 16, 32, 64)
OFF, AUTO = "off", "auto"
SETTINGS = (OFF, "K=2", "K=4", "K=8", AUTO)
WORKLOADS: Mapping[str, tuple[str, ...]] = {
    "copy": ("copy", "edit"),
    "code": ("code",),
    "chat": ("chat",),
    "mixed": ("copy", "code", "chat", "json"),
}
SWING = (4, 48)
PICTURES = Path(__file__).parent / "results"

_LEAST_RATIO, _LEAST_SWING_RATIO = 0.97, 0.95
_NUM_PROMPTS = 16
_MAX_TOKENS = 8
_KV_TOKENS = 65_536


@dataclass(frozen=True, slots=True)
class _Setting:
    """What drafts, and what drafts are thought to cost."""

    drafting: Drafting
    cost: DraftCost


class Bench:
    """The engine and its settings; prompts stay in the prefix cache, so that decoding is what is measured."""

    def __init__(self, max_streams: int) -> None:
        config = replace(
            engine_config(enable_prefix_cache=True), kv_cache_tokens=_KV_TOKENS, num_speculative_tokens=_MAX_TOKENS
        )
        config = replace(config, max_num_seqs=max_streams)
        parts = load_parts(config)
        self._model = build_draft_beside(BUNDLED, DraftConfig(kv_cache_tokens=_KV_TOKENS, num_threads=1), parts)
        self.engine = Engine.from_parts(config, parts)
        cost = measure_draft_cost(parts.runner)
        self._passes = measure_pass_times(self._model.runner)
        self._settings = {name: self._setting(name, cost) for name in SETTINGS}
        self._ids = count()

    def use(self, name: str) -> None:
        """Let the idle engine draft under one of `SETTINGS`; what `auto` has learned before is kept."""
        setting = self._settings[name]
        self.engine._drafting, self.engine._draft_cost = setting.drafting, setting.cost

    def request(self, workload: str, index: int, max_tokens: int) -> Request:
        """One of the requests of a workload; the same `index` makes the same text."""
        kinds = WORKLOADS[workload]
        prompt = workload_prompt(kinds[index % len(kinds)], index % _NUM_PROMPTS, self.engine.tokenizer)
        temperature = 0.0 if index % 2 else 0.7
        sampling = SamplingParams(max_tokens=max_tokens, seed=index, temperature=temperature, ignore_eos=True)
        return Request(request_id=f"r{next(self._ids)}", prompt_token_ids=prompt, sampling=sampling)

    def tokens_per_s(self, workload: str, num_streams: int, num_tokens: int) -> float:
        """Output of streams that all decode, until they have written `num_tokens` each on average."""
        engine = self.engine
        requests = [self.request(workload, index, 4 * num_tokens + 64) for index in range(num_streams)]
        for request in requests:
            engine.add(request)
        while engine.last_step.num_prompt_tokens or len(engine._scheduler.decoding()) < num_streams:
            engine.step()
        started_s, num_left = time.perf_counter(), num_tokens * num_streams
        while num_left > 0:
            num_left -= sum(len(output.token_ids) for output in engine.step())
        elapsed_s = time.perf_counter() - started_s
        for request in requests:
            engine.abort(request.request_id)
        engine.step()
        return (num_tokens * num_streams - num_left) / elapsed_s

    def swinging_tokens_per_s(self, num_phases: int, phase_s: float) -> float:
        """Output while the number of streams goes back and forth; a stream that ends is replaced at once."""
        engine, num_tokens, index, live = self.engine, 0, 0, set[str]()
        started_s = time.perf_counter()
        for phase in range(num_phases):
            wanted, ends_s = SWING[phase % 2], started_s + (phase + 1) * phase_s
            while time.perf_counter() < ends_s:
                while len(live) < wanted:
                    request = self.request("mixed", index, 48)
                    index += 1
                    live.add(request.request_id)
                    engine.add(request)
                for output in engine.step():
                    num_tokens += len(output.token_ids)
                    if output.finish_reason is not None:
                        live.discard(output.request_id)
        elapsed_s = time.perf_counter() - started_s
        for request_id in live:
            engine.abort(request_id)
        engine.step()
        return num_tokens / elapsed_s

    def _setting(self, name: str, cost: DraftCost) -> _Setting:
        """The engine builds the drafting of each setting, as it would at its start."""
        engine, config = self.engine, self.engine.config
        num_tokens = _MAX_TOKENS if name in (OFF, AUTO) else int(name.removeprefix("K="))
        engine.config = replace(
            config, draft_budget="measured" if name == AUTO else "fixed", num_speculative_tokens=num_tokens
        )
        engine._draft_cost = cost if name == AUTO else DraftCost.free()
        if name == OFF:
            engine.use_drafter(None)
        else:
            local = DraftModelDrafter(
                self._model,
                max_draft_tokens=num_tokens,
                cost=engine._draft_cost,
                pass_cost=TableCost(self._passes) if name == AUTO else None,
            )
            lookup = NgramDrafter(max_draft_tokens=num_tokens)
            engine.use_drafter(BestDraft((lookup, None), (local, local.promise)))
        setting = _Setting(engine._drafting, engine._draft_cost)
        engine.config = config
        return setting


def measure(*, quick: bool) -> Answer:
    """Interleave the settings at each point; the picture goes to `results/`."""
    streams, num_rounds = ((1, 4), 1) if quick else (STREAMS, 3)
    bench = Bench(max(*streams, *SWING))
    points: dict[tuple[str, int], Rounds] = {}
    for workload in WORKLOADS:
        for num_streams in streams:
            points[workload, num_streams] = _point(bench, workload, num_streams, num_rounds, quick=quick)
    swing = _swing(bench, 1 if quick else 3, quick=quick)
    if not quick:
        for workload in WORKLOADS:
            PICTURES.joinpath(f"never-slower-{workload}.svg").write_text(_picture(points, workload), encoding="utf-8")
    rows = [
        Row.of(_name(workload, num_streams, name), rounds, "tokens/s")
        for (workload, num_streams), rounds in points.items()
        for name in SETTINGS
    ]
    return Answer(
        question="Tokens/s under fixed settings and under the measured budget?",
        model=bench.engine.model_id,
        rows=(*rows, *(Row.of(_swing_name(name), swing, "tokens/s") for name in SETTINGS)),
        limits=(*(_limit(key, rounds) for key, rounds in points.items()), _swing_limit(swing)),
        counts={"rounds": num_rounds, "threads": THREADS},
        notes=("prompts come from the prefix cache; half of the requests at T = 0, half at 0.7, never-ending",),
    )


def _point(bench: Bench, workload: str, num_streams: int, num_rounds: int, *, quick: bool) -> Rounds:
    num_tokens = 4 if quick else max(24, 128 // num_streams)
    rounds = Rounds()
    for index in warmed_up(num_rounds):
        samples: dict[str, Sequence[float]] = {}
        first = index % len(SETTINGS)
        for name in (*SETTINGS[first:], *SETTINGS[:first]):
            time.sleep(0.0 if quick else SETTLE_S)
            bench.use(name)
            speed = bench.tokens_per_s(workload, num_streams, num_tokens if index else max(2, num_tokens // 3))
            samples[_name(workload, num_streams, name)] = [speed]
        if index:
            rounds.add(samples)
    speeds = {name: rounds.medians(_name(workload, num_streams, name)) for name in SETTINGS}
    progress(f"{workload}, {num_streams}: " + ", ".join(f"{n} {sorted(v)[len(v) // 2]:.0f}" for n, v in speeds.items()))
    return rounds


def _swing(bench: Bench, num_rounds: int, *, quick: bool) -> Rounds:
    rounds = Rounds()
    for index in range(num_rounds):
        samples: dict[str, Sequence[float]] = {}
        first = index % len(SETTINGS)
        for name in (*SETTINGS[first:], *SETTINGS[:first]):
            bench.use(name)
            speed = bench.swinging_tokens_per_s(2 if quick else 6, 0.2 if quick else 1.5)
            samples[_swing_name(name)] = [speed]
        rounds.add(samples)
        progress(f"swing {index + 1} of {num_rounds}")
    return rounds


def _limit(key: tuple[str, int], rounds: Rounds) -> Limit:
    """Auto against the fixed setting that was best in the median, round by round."""
    workload, num_streams = key
    best = max(SETTINGS[:-1], key=lambda name: Row.of(_name(workload, num_streams, name), rounds).summary.p50)
    ratios = rounds.ratios(_name(workload, num_streams, AUTO), _name(workload, num_streams, best))
    return Limit.at_least_of(f"{workload}, {num_streams} streams: auto / best fixed ({best})", ratios, _LEAST_RATIO)


def _swing_limit(rounds: Rounds) -> Limit:
    best = max(SETTINGS[:-1], key=lambda name: Row.of(_swing_name(name), rounds).summary.p50)
    ratios = rounds.ratios(_swing_name(AUTO), _swing_name(best))
    return Limit.at_least_of(f"streams swing {SWING}: auto / best fixed ({best})", ratios, _LEAST_SWING_RATIO)


def _name(workload: str, num_streams: int, setting: str) -> str:
    return f"{workload}, {num_streams} streams, {setting}"


def _swing_name(setting: str) -> str:
    return f"swing {SWING[0]} to {SWING[1]} streams, {setting}"


def _picture(points: Mapping[tuple[str, int], Rounds], workload: str) -> str:
    """Speed of each setting as a multiple of no drafts, by streams."""
    series = {}
    for name in SETTINGS:
        line = []
        for (kind, num_streams), rounds in points.items():
            if kind == workload:
                ratios = rounds.ratios(_name(kind, num_streams, name), _name(kind, num_streams, OFF))
                line.append((float(num_streams), median(ratios)))
        series[name] = line
    title = f"{workload}: tokens/s against no drafts"
    figure = line_chart(series, x_label="streams", y_label="times as fast", title=title, log_x=True)
    return figure[figure.index("<svg") : figure.rindex("</figure>")]
