"""Draws a verifier and its drafter at work, from a real run: `python -m tests.benchmarks.timeline --output FILE.svg`.

Both are processes of their own, one core and one thread each where there are two cores, and share a clock.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.config import BUNDLED
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.table import LookupResult
from cluster.engine.engine import Engine
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.types import Request, SamplingParams
from deployments.draft_client import DraftClient
from tests.benchmarks.measure import progress
from tests.benchmarks.run_ahead_harness import NUM_TOKENS, ahead_client, load_target, pin, start_drafter
from tests.benchmarks.timeline_svg import Round, Timeline, count_results, timeline_svg
from tests.benchmarks.traced_drafter import passes_from_json
from tests.benchmarks.workloads import PROMPTS, chat_ids

NUM_ROUNDS = 14
_WARM_UP_ROUNDS = 30


@dataclass(slots=True)
class _Noted:
    """One round, as far as the drafter's calls tell."""

    sent_s: float = 0.0
    base_length: int = 0
    result: str = "none"
    num_drafted: int = 0
    num_accepted: int = 0


class TracedClient:
    """Stands between an engine with one sequence and its client, and notes what happens in a round.

    Args:
        client: of a drafter.

    Attributes:
        noted: the round that runs or ran last.
    """

    def __init__(self, client: DraftClient) -> None:
        self.name, self.noted = client.name, _Noted()
        self._client = client

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """As in `DraftClient`; the lookup's result is noted."""
        before = self._client.stats().lookups
        drafts = self._client.propose(wanted)
        after = self._client.stats().lookups
        for result in after:
            if after[result] > before[result]:
                # Whatever else came, the table of the last round did not.
                self.noted.result = result if result in (LookupResult.HIT, LookupResult.MISS) else "late"
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """As in `DraftClient`; noted are the draft and when the drafter was told."""
        self._client.begin_round(items)
        for item in items:
            self.noted.num_drafted = len(item.draft_token_ids)
            self.noted.base_length = item.sequence.num_tokens
        self.noted.sent_s = time.monotonic()

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """As in `DraftClient`; the verdict is noted."""
        self._client.observe(sequence, draft, num_accepted)
        self.noted.num_accepted = num_accepted

    def forget(self, request_id: str) -> None:
        """As in `DraftClient`."""
        self._client.forget(request_id)

    def close(self) -> None:
        """As in `DraftClient`."""
        self._client.close()


def record(model: str, draft: str, num_rounds: int) -> Timeline:
    """Run a verifier and a drafter, and note some rounds in a row, the first one, with the prompt, included.

    Args:
        model: the target.
        draft: a draft model for it.
        num_rounds: how many rounds.
    """
    cores = pin()
    target = load_target(model)
    prompt = chat_ids(target.parts.tokenizer, PROMPTS["edit"])
    with start_drafter(target, draft, cores, module="tests.benchmarks.traced_drafter") as process:
        client = TracedClient(ahead_client(target, process.record))
        target.engine.use_drafter(client)
        for request_id, num in (("warm-up", _WARM_UP_ROUNDS), ("shown", num_rounds)):
            rounds = _run(target.engine, client, request_id, prompt, num)
            time.sleep(0.1)  # Whatever the drafter still does for the last round is over.
        target.engine.close()
        noted: dict[str, Any] = json.loads(process.stop())
    began_s = rounds[0].began_s
    counts = ", ".join(f"{number} {name}" for name, number in count_results(rounds).items())
    num_tokens = sum(item.num_accepted + 1 for item in rounds)
    one_core = "" if cores.are_apart else " (BOTH ON ONE CORE: times mean nothing)"
    return Timeline(
        title=f"A verifier and the drafter that runs ahead of it{one_core}",
        subtitle=f"{target.parts.model_id}, drafts of up to {NUM_TOKENS} tokens, T = 0, one thread each: "
        f"{len(rounds)} rounds, {num_tokens} tokens; {counts}",
        rounds=rounds,
        passes=tuple(item for item in passes_from_json(noted["passes"]) if item.began_s >= began_s),
        heard=tuple((heard_s, base_length) for heard_s, base_length in noted["heard"] if heard_s >= began_s),
    )


def _run(
    engine: Engine, client: TracedClient, request_id: str, prompt: tuple[int, ...], num_rounds: int
) -> tuple[Round, ...]:
    """The first rounds of a request."""
    sampling = SamplingParams(max_tokens=(num_rounds + 1) * (NUM_TOKENS + 1), temperature=0.0, seed=0, ignore_eos=True)
    engine.add(Request(request_id=request_id, prompt_token_ids=prompt, sampling=sampling))
    rounds = []
    for _ in range(num_rounds):
        noted = client.noted = _Noted()
        began_s = time.monotonic()
        engine.step()
        ended_s = time.monotonic()
        rounds.append(
            Round(
                began_s=began_s,
                sent_s=noted.sent_s,
                forward_s=noted.sent_s + engine.last_step.forward_s,
                ended_s=ended_s,
                base_length=noted.base_length,
                result=noted.result,
                num_drafted=noted.num_drafted,
                num_accepted=noted.num_accepted,
            )
        )
    engine.abort(request_id)
    engine.step()
    return tuple(rounds)


def main() -> int:
    """Record, draw, write."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.timeline", description=__doc__)
    parser.add_argument("--output", required=True, metavar="FILE.svg", type=Path)
    parser.add_argument("--model", default=BUNDLED, metavar="FOLDER", help="the target (default: bundled)")
    parser.add_argument("--draft", default=BUNDLED, metavar="FOLDER", help="the draft model (default: bundled)")
    parser.add_argument("--rounds", default=NUM_ROUNDS, type=int, metavar="N", help=f"default: {NUM_ROUNDS}")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    timeline = record(args.model, args.draft, args.rounds)
    args.output.write_text(timeline_svg(timeline), encoding="utf-8")
    progress(f"written to {args.output}: {timeline.subtitle}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
