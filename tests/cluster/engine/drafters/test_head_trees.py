"""Heads whose drafts are trees, in whole engines: no draft changes a token, and more of a tree is accepted."""

import json
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest

from cluster.config import DraftConfig, EngineConfig, check_trees
from cluster.engine import token_tree
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.draft_growth import CHAIN, TreeShape
from cluster.engine.drafters.head import Head, HeadRows
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.engine import Engine
from cluster.engine.noise import FloatArray
from cluster.errors import ConfigError
from cluster.types import FinishReason, StepStats
from tests.cluster.engine.drafters.head_harness import (
    FIRST_TOKEN,
    KnowingHead,
    KnownState,
    disturbed_run,
    save_specforge,
)
from tests.cluster.engine.drafters.test_head_drafter import SAMPLING, all_the_same, counts
from tests.cluster.engine.drafters.test_head_tree_logits import BRANCHES, make_head
from tests.cluster.engine.drafters.test_medusa_mtp_engine import (
    build_head,
    expected,
    items,
    runner_for,
    seen,
)
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request, run
from tests.cluster.engine.test_grammar import SCHEMA
from tests.cluster.engine.test_grammar import expected as grammar_expected
from tests.cluster.engine.test_grammar import requests as grammar_requests
from tests.tiny import EOS_TOKEN_ID

SHAPE = TreeShape(max_nodes=12, max_branches=BRANCHES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_specforge(tmp_path_factory.mktemp("head"))


def drafter_of(head: Head, shape: TreeShape = SHAPE, **settings: Any) -> HeadDrafter:
    settings = {"max_draft_tokens": 4, "cost": DraftCost.free(), "eos_token_ids": frozenset({EOS_TOKEN_ID}), **settings}
    return HeadDrafter(head, shape=shape, **settings)


def tree_engine(drafter: HeadDrafter, **settings: Any) -> Engine:
    return make_engine(drafter=drafter, draft_budget="fixed", **{"num_speculative_tokens": 4, **settings})


class Watched(HeadDrafter):
    """Keeps what it proposed."""

    drafts: list[Draft]

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        found = super().propose(wanted)
        self.drafts = [*getattr(self, "drafts", []), *found.values()]
        return found


def test_the_kernels_draft_the_trees_of_the_torch_head(folder: Path) -> None:
    """But for close calls: the kernels round less."""
    paths = []
    for kind in ("native", "torch"):
        drafter = Watched(make_head(folder, kind), max_draft_tokens=3, shape=SHAPE, cost=DraftCost.free())
        run(tree_engine(drafter), [request("a", random_prompt(0, 20), max_tokens=30, temperature=0.8, seed=3)])
        paths.append([set(token_tree.paths(draft.token_ids, draft.parents)) for draft in drafter.drafts])
    num_same = sum(len(native & torch) for native, torch in zip(*paths, strict=True))
    assert num_same > 0.9 * sum(map(len, paths[0])) > 100


@pytest.mark.parametrize("name", SAMPLING)
def test_trees_of_a_head_change_no_token(folder: Path, name: str) -> None:
    drafter = drafter_of(make_head(folder, "native"))
    requests = [
        request(f"r{i}", random_prompt(i, 5 + 30 * i), max_tokens=30, seed=i, **SAMPLING[name]) for i in range(4)
    ]
    steps: list[StepStats] = []
    results = run(tree_engine(drafter), requests, steps)
    assert counts(steps)[0] > 300
    assert all_the_same(results, requests)
    assert (drafter.num_sequences, drafter.num_feature_bytes) == (0, 0)


def test_preemption_cached_prompts_aborts_and_changes_of_role_change_no_token_under_trees(folder: Path) -> None:
    head = make_head(folder, "native")
    engine, num_free = tree_engine(drafter_of(head), num_blocks=11), head.num_free_blocks
    requests = [request(f"r{i}", random_prompt(i % 2, 40), max_tokens=60, seed=i, ignore_eos=True) for i in range(5)]
    results, steps = disturbed_run(engine, requests)
    assert sum(step.num_preempted for step in steps) > 0
    assert max(result.num_cached_tokens for result in results.values()) > 0
    assert counts(steps)[0] > 100
    assert all_the_same(results, requests[:4])
    assert head.num_free_blocks == num_free


class BlurredHead(KnowingHead):
    """Knows the target, and sees it blurred: what it draws first is often wrong, and among the next ones right.

    Args:
        blur: of the logits' own spread.
    """

    max_branches = BRANCHES

    def __init__(self, blur: float) -> None:
        super().__init__()
        self._blur, self._levels = blur, dict[int, list[list[int]]]()

    def begin(self, rows: Seq[HeadRows]) -> FloatArray:
        logits = super().begin(rows)
        self._levels = {id(each.state): [[]] for each in rows}
        return self._blurred(logits)

    def step(self, states: Seq[KnownState], token_ids: Seq[int], parents: Seq[int] | None = None) -> FloatArray:
        assert parents is not None
        rows = list(zip(states, token_ids, parents, strict=True))
        paths = [[*self._levels[id(state)][parent], token] for state, token, parent in rows]
        self._levels |= {
            id(state): [p for p, row in zip(paths, rows, strict=True) if row[0] is state] for state in states
        }
        texts = [KnownState([*state.tokens, *path]) for state, path in zip(states, paths, strict=True)]
        return self._blurred(np.concatenate([self._logits(text) for text in texts]))

    def _blurred(self, logits_BC: FloatArray) -> FloatArray:
        generator = np.random.default_rng(int(abs(logits_BC[0, 0]) * 1e6))
        blur_BC = generator.normal(size=logits_BC.shape) * logits_BC.std() * self._blur
        blurred: FloatArray = (logits_BC + blur_BC).astype(np.float32)
        return blurred


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_of_a_tree_more_is_accepted_than_of_a_chain(temperature: float) -> None:
    """The head also checks that it is given the hidden states of the accepted path, and of nothing else."""
    rounds = []
    for shape in (CHAIN, TreeShape(max_nodes=16, max_branches=BRANCHES)):
        requests = [
            request(
                f"r{i}", (FIRST_TOKEN, *random_prompt(i, 8)), max_tokens=40, seed=i, temperature=temperature,
                ignore_eos=True,
            )
            for i in range(3)
        ]  # fmt: skip
        steps: list[StepStats] = []
        assert all_the_same(run(tree_engine(drafter_of(BlurredHead(0.35), shape)), requests, steps), requests)
        rounds.append(len(steps))
    assert rounds[1] < 0.85 * rounds[0]


@pytest.mark.parametrize("case", ["medusa", pytest.param("deepseek_v3", marks=pytest.mark.slow)])
def test_trees_of_every_kind_of_head_change_nothing_with_preemption_and_prefix_hits(case: str) -> None:
    wanted = expected(runner_for(case), items())
    drafter = drafter_of(build_head(case, max_branches=BRANCHES))
    engine = tree_engine(drafter, runner=runner_for(case), max_num_batched_tokens=128, prefill_chunk_tokens=32)
    steps: list[StepStats] = []
    assert seen(run(engine, items(), steps)) == wanted
    assert seen(run(engine, items(), steps)) == wanted
    drafted, accepted = counts(steps)
    assert 0 < accepted < drafted
    assert sum(step.num_preempted for step in steps) > 0


def test_a_medusa_draft_is_the_best_part_of_the_product_of_its_heads() -> None:
    drafter = Watched(build_head("medusa"), max_draft_tokens=3, shape=SHAPE, cost=DraftCost.free())
    run(tree_engine(drafter, runner=runner_for("medusa")), items()[:1])
    trees = [draft for draft in drafter.drafts if draft.parents]
    assert len(trees) > 5
    for draft in trees:
        levels = token_tree.depths(len(draft.token_ids), draft.parents)
        for depth in set(levels):
            of_depth = [
                (t, c) for t, c, d in zip(draft.token_ids, draft.confidences, levels, strict=True) if d == depth
            ]
            assert len(dict(of_depth)) == len(set(of_depth)) <= BRANCHES  # One head's candidates, behind any parent.


def test_c8_thirty_json_requests_at_once_are_valid_under_trees(folder: Path) -> None:
    schema = [item for item in grammar_requests() if item.request_id.startswith("schema")]
    requests = [replace(item, request_id=f"{item.request_id}/{i}") for i in range(10) for item in schema]
    steps: list[StepStats] = []
    results = run(tree_engine(drafter_of(make_head(folder, "native")), num_blocks=128), requests, steps)
    assert len(results) == 30
    assert counts(steps)[0] > 100
    for item in requests:
        result, alone = results[item.request_id], grammar_expected()[item.request_id.rsplit("/", 1)[0]]
        assert result.token_ids == alone.token_ids
        if result.finish_reason is FinishReason.STOP:
            jsonschema.validate(json.loads(result.text), SCHEMA)


@pytest.mark.parametrize(
    ("draft", "engine"),
    [
        ({"tree_nodes": 8}, {}),
        ({"tree_nodes": 8, "heads": ("head",)}, {"acceptance": "block"}),
        ({"tree_nodes": 8, "heads": ("head",)}, {"acceptance": "rejection"}),
    ],
)
def test_d17_trees_that_nobody_makes_or_no_rule_takes_are_refused(draft: Any, engine: Any) -> None:
    with pytest.raises(ConfigError, match=r"draft\.tree_nodes"):
        check_trees(EngineConfig(**engine), DraftConfig(**draft))
    check_trees(EngineConfig(**engine), DraftConfig(**{**draft, "tree_nodes": 0}))


@pytest.mark.parametrize("settings", [{"tree_nodes": -1}, {"tree_nodes": 257}, {"tree_branches": 1}])
def test_widths_out_of_range_are_refused_with_field_and_range(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        DraftConfig(**settings)
