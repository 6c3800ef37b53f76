"""How much of the drafting hides behind the forward pass when two half-batches take turns, and what does that bring?

`python -m tests.benchmarks.dual_streams --output FILE.svg` draws some rounds of such a run.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from cluster.config import BUNDLED, DraftConfig, EngineConfig, Overlap
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.draft_build import build_draft_beside
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.engine import Engine
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.startup import EngineParts, load_parts
from cluster.types import Request, SamplingParams, SpeculationMode, SpeculationParams
from tests.benchmarks.dual_streams_svg import Span, dual_streams_svg
from tests.benchmarks.measure import THREADS, Variant, interleave, progress
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import PROMPTS, chat_ids

ON, OFF = "one thread each, in turns", f"{THREADS} threads each, one after the other"
PLAIN, HIDDEN = f"{THREADS} threads, no drafts", "hidden share of drafting"
NUM_SEQUENCES, NUM_TOKENS = 8, 4
_KV_TOKENS, _SHOWN_ROUNDS = 16_384, 16
_MODES: Mapping[str, Overlap] = {ON: "on", OFF: "off", PLAIN: "off"}


@dataclass(slots=True)
class Spans:
    """When the target and the drafter worked, monotonic time, and for how many sequences."""

    forward: list[Span] = field(default_factory=list)
    drafting: list[Span] = field(default_factory=list)

    @property
    def hidden_share(self) -> float:
        """Share of the drafting time in which a forward pass ran."""
        hidden_s = sum(draft.overlap_s(forward) for draft in self.drafting for forward in self.forward)
        return hidden_s / sum(span.ended_s - span.began_s for span in self.drafting)


class TracedDrafter(DraftModelDrafter):
    """A local draft model that notes when it drafts, and when it was told that a pass begins."""

    spans: Spans
    told_s = 0.0
    half = ""

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """As in `DraftModelDrafter`; noted is when."""
        began_s = time.monotonic()
        drafts = super().propose(wanted)
        if drafts:
            half = _half(want.sequence for want in wanted)
            self.spans.drafting.append(Span(began_s=began_s, ended_s=time.monotonic(), half=half))
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """As in `DraftModelDrafter`; noted is when."""
        super().begin_round(items)
        self.told_s, self.half = time.monotonic(), _half(item.sequence for item in items)


def measure(*, quick: bool) -> Answer:
    """Interleave whole batches of 8: in turns, one after the other, and without drafts.

    Raises:
        RuntimeError: the ways wrote different tokens.
    """
    num_rounds, max_tokens = (1, 8) if quick else (5, 64)
    bench = Bench(max_tokens)
    variants: list[Variant] = [partial(bench.run, name) for name in (ON, OFF, PLAIN)]
    rounds = interleave(variants, num_rounds=num_rounds)
    return Answer(
        question=f"{NUM_SEQUENCES} sequences, drafts of {NUM_TOKENS} by the bundled draft model in the same process?",
        model=bench.parts.model_id,
        rows=(
            *(Row.of(name, rounds, "tokens/s") for name in (ON, OFF, PLAIN)),
            Row.scaled("in turns / one after the other", rounds.ratios(ON, OFF), 1.0, "ratio"),
            Row.of(HIDDEN, rounds, "ratio"),
        ),
        limits=(Limit.at_least_of(HIDDEN, rounds.samples(HIDDEN), 0.8),),
        counts={"rounds": num_rounds, "sequences": NUM_SEQUENCES, "tokens": max_tokens, "cores": THREADS},
        notes=("all ways wrote the same tokens; overlap auto takes the faster way",),
    )


class Bench:
    """A target and a draft model on two cores, used in all ways.

    Args:
        max_tokens: output tokens of each sequence.
    """

    def __init__(self, max_tokens: int) -> None:
        self.parts, self._max_tokens, self._ids = load_parts(_config("off")), max_tokens, count()
        self._texts: list[list[int]] | None = None
        self._drafter = _drafter(self.parts)
        self._engines = {
            name: Engine.from_parts(_config(mode), self.parts, draft_cost=DraftCost.free(), drafter=self._drafter)
            for name, mode in _MODES.items()
        }

    def run(self, name: str) -> Mapping[str, Seq[float]]:
        """One batch; the sequences are those of all other ways."""
        spans, texts, decode_s = self.record(name)
        self._texts = self._texts or texts
        if texts != self._texts:
            raise RuntimeError(f"{name}: other tokens")
        num_tokens = sum(map(len, texts)) - NUM_SEQUENCES
        shares = {HIDDEN: [spans.hidden_share]} if name == ON else {}
        return {name: [num_tokens / decode_s], **shares}

    def record(self, name: str) -> tuple[Spans, list[list[int]], float]:
        """What happened behind the prefill, the tokens by sequence, and the seconds of decoding."""
        engine, drafter = self._engines[name], self._drafter
        wanted = [self._request(index, name) for index in range(NUM_SEQUENCES)]
        texts: dict[str, list[int]] = {request.request_id: [] for request in wanted}
        for request in wanted:
            engine.add(request)
        started_s = None
        drafter.spans = Spans()
        while engine.has_work:
            if started_s is None and all(texts.values()):
                drafter.spans, started_s = Spans(), time.monotonic()
            for output in engine.step():
                texts[output.request_id] += output.token_ids
            ended_s = drafter.told_s + engine.last_step.forward_s
            drafter.spans.forward.append(Span(began_s=drafter.told_s, ended_s=ended_s, half=drafter.half))
        assert started_s is not None, "every prompt is followed by tokens"
        return drafter.spans, list(texts.values()), time.monotonic() - started_s

    def _request(self, index: int, name: str) -> Request:
        prompts = list(PROMPTS.values())
        mode = SpeculationMode.OFF if name == PLAIN else SpeculationMode.ON
        return Request(
            request_id=f"{next(self._ids)}-{index}",
            prompt_token_ids=chat_ids(self.parts.tokenizer, prompts[index % len(prompts)]),
            sampling=SamplingParams(max_tokens=self._max_tokens, temperature=0.0, seed=index, ignore_eos=True),
            speculation=SpeculationParams(mode=mode),
        )


def _half(sequences: Iterable[Sequence]) -> str:
    """A name for those who work: the half with the first sequence is A."""
    return "A" if any(sequence.request_id.endswith("-0") for sequence in sequences) else "B"


def _config(overlap: Overlap) -> EngineConfig:
    return EngineConfig(
        num_threads=THREADS,
        kv_cache_tokens=_KV_TOKENS,
        enable_prefix_cache=False,
        drafter="off",
        num_speculative_tokens=NUM_TOKENS,
        draft_budget="fixed",
        overlap=overlap,
    )


def _drafter(parts: EngineParts) -> TracedDrafter:
    """The bundled draft model. It takes drafts for free, so that every round of every way has some."""
    config = DraftConfig(num_threads=THREADS, num_speculative_tokens=NUM_TOKENS, kv_cache_tokens=_KV_TOKENS)
    model = build_draft_beside(BUNDLED, config, parts)
    drafter = TracedDrafter(model, max_draft_tokens=NUM_TOKENS, cost=DraftCost.free())
    drafter.spans = Spans()
    return drafter


def main() -> int:
    """Record, draw, write."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.dual_streams", description=__doc__)
    parser.add_argument("--output", required=True, metavar="FILE.svg", type=Path)
    args = parser.parse_args()
    bench = Bench(64)
    bench.record(ON)  # Warm-up.
    spans, _, _ = bench.record(ON)
    shown = spans.forward[4 : 4 + _SHOWN_ROUNDS]
    share = f"{100 * spans.hidden_share:.0f} % of the drafting time lies behind a forward pass"
    subtitle = f"{bench.parts.model_id}, {NUM_SEQUENCES} sequences in two halves, drafts of {NUM_TOKENS}: {share}"
    args.output.write_text(dual_streams_svg(shown, spans.drafting, subtitle=subtitle), encoding="utf-8")
    progress(f"written to {args.output}: {subtitle}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
