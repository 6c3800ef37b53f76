"""Settings that the user gives: of one engine, and of the draft model. Nothing is read from the environment here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from cluster.errors import ConfigError, check_range
from cluster.grammar.limits import GrammarLimits

Dtype = Literal["auto", "bfloat16", "float32"]
Numerics = Literal["auto", "invariant", "fast"]
DrafterName = Literal["ngram", "off"]
DraftBudgetMode = Literal["measured", "fixed"]
Overlap = Literal["auto", "on", "off"]
Acceptance = Literal["coupled", "rejection", "block"]

BUNDLED = "bundled"
"""Name of the target, and of the draft model, that come with Outrider."""

TARGETS_OWN_HEAD = "mtp"
"""Names the draft head inside the target's own checkpoint, in `draft.heads`."""

BUNDLED_DRAFT_FOLDER = Path(__file__).parent / "assets" / "draft-smollm2-135m"
"""The draft model for the bundled target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What one verifier's engine needs to start.

    Attributes:
        model: "bundled", a local folder, or a hub id.
        revision: commit of a hub id; required for hub ids.
        cache_dir: where converted weights are kept; None takes the user's cache folder.
        dtype: weights and activations; auto is bfloat16 for the KV cache of the CPU kernels and on a GPU, float32 for
            models that run on a CPU without them.
        numerics: invariant gives a row the same bits whatever the batch; auto takes it where it is cheap.
        num_threads: CPU threads of the forward pass; 0 takes the cores this process may use.
        max_model_len: longest prompt plus output in tokens; 0 takes the model's own limit.
        block_size: tokens per KV block.
        kv_cache_tokens: KV capacity in tokens.
        max_num_seqs: most sequences in one round.
        max_num_batched_tokens: most rows in one round.
        prefill_chunk_tokens: most prompt tokens of one sequence in one round.
        enable_prefix_cache: reuse KV of equal prefixes.
        drafter: source of drafts where no draft model gives any.
        num_speculative_tokens: upper limit K of drafts per sequence and round; 0 turns speculation off.
        acceptance: which draft tokens are kept. coupled keeps those that equal what the target draws itself, so that
            the text is the same whatever is drafted, and with speculation off. rejection and block keep the target's
            distribution, but not its tokens: the text of a seed depends on the drafts, and drafts are chains.
        draft_budget: measured verifies as many draft tokens as bring the most tokens per second; fixed verifies K
            wherever there are so many, whatever it costs.
        overlap: whether a draft model or head in the verifier drafts for one half of the batch while the other half is
            verified. auto measures now and then whether that brings more tokens per second. Off beside a drafter actor.
        max_draft_sequences: nobody drafts while more sequences than this decode; 0 for no such limit.
        max_draft_context: sequences of more tokens than this do not draft; 0 for no such limit.
        min_acceptance_rate: a sequence whose drafts are accepted less does not draft, 0..1; 0 for no such limit.
        calibration: file that `outrider calibrate` wrote, to start from; None measures a few passes instead.
        grammar: what the grammars of requests may cost.
    """

    model: str = "bundled"
    revision: str | None = None
    cache_dir: str | None = None
    dtype: Dtype = "auto"
    numerics: Numerics = "auto"
    num_threads: int = 0
    max_model_len: int = 0
    block_size: int = 32
    kv_cache_tokens: int = 65_536
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 1024
    prefill_chunk_tokens: int = 512
    enable_prefix_cache: bool = True
    drafter: DrafterName = "ngram"
    num_speculative_tokens: int = 7
    acceptance: Acceptance = "coupled"
    draft_budget: DraftBudgetMode = "measured"
    overlap: Overlap = "auto"
    max_draft_sequences: int = 0
    max_draft_context: int = 0
    min_acceptance_rate: float = 0.0
    calibration: str | None = None
    grammar: GrammarLimits = field(default_factory=GrammarLimits)

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        _check_choice("dtype", self.dtype, get_args(Dtype))
        _check_choice("numerics", self.numerics, get_args(Numerics))
        _check_choice("drafter", self.drafter, get_args(DrafterName))
        check_range("num_threads", self.num_threads, 0, 1024)
        check_range("max_model_len", self.max_model_len, 0, 1 << 24)
        check_range("block_size", self.block_size, 32, 256)
        if self.block_size % 32:
            raise ConfigError(field="block_size", value=self.block_size, allowed="a multiple of 32")
        check_range("max_num_seqs", self.max_num_seqs, 1, 4096)
        check_range("max_num_batched_tokens", self.max_num_batched_tokens, 16, 1 << 20)
        check_range("prefill_chunk_tokens", self.prefill_chunk_tokens, 16, 1 << 20)
        check_range("num_speculative_tokens", self.num_speculative_tokens, 0, 64)
        _check_choice("acceptance", self.acceptance, get_args(Acceptance))
        _check_choice("draft_budget", self.draft_budget, get_args(DraftBudgetMode))
        _check_choice("overlap", self.overlap, get_args(Overlap))
        check_range("max_draft_sequences", self.max_draft_sequences, 0, 4096)
        check_range("max_draft_context", self.max_draft_context, 0, 1 << 24)
        check_range("min_acceptance_rate", self.min_acceptance_rate, 0, 1, kind="a share")
        check_range("kv_cache_tokens", self.kv_cache_tokens, 2 * self.block_size, 1 << 32)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                field="max_num_batched_tokens",
                value=self.max_num_batched_tokens,
                allowed=f"at least max_num_seqs ({self.max_num_seqs})",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """The draft model and whoever runs it: a drafter actor, or the verifier itself.

    Attributes:
        model: "bundled", a folder, or None for the bundled one beside the bundled target and none beside any other.
        heads: draft heads that live on the target's hidden states and run in the verifier, whatever `drafter` is but
            "off": folders of EAGLE-3 or Medusa checkpoints, one of each kind, and "mtp" for the module inside the
            target's own checkpoint.
        num_speculative_tokens: longest draft that the draft model or a head makes, in a tree on its longest path; never
            longer than the engine's own limit.
        tree_nodes: most tokens of a head's draft, which is a tree then; 0 for chains. How many of them are verified is
            for the budget.
        tree_branches: in a tree, tokens that are looked at behind each, and paths that grow at once.
        max_fan_out: most next tokens that an actor drafts for behind each number of accepted tokens.
        kv_cache_tokens: KV capacity of the draft model in tokens, branches included, and of each head.
        max_model_len: longest sequence that is followed, in tokens; 0 takes the draft model's or head's own limit.
        max_sequences: most sequences that an actor follows at once.
        num_threads: CPU threads of an actor's forward pass.
        draft_wait_s: how long a round waits for a late draft, in seconds.
        idle_timeout_s: a sequence that no verifier speaks of for this long is dropped, in seconds.
        port: an actor's first port for verifiers on other nodes; 0 takes a free one.
    """

    model: str | None = None
    heads: tuple[str, ...] = ()
    num_speculative_tokens: int = 4
    tree_nodes: int = 0
    tree_branches: int = 4
    max_fan_out: int = 4
    kv_cache_tokens: int = 65_536
    max_model_len: int = 0
    max_sequences: int = 256
    num_threads: int = 1
    draft_wait_s: float = 0.0
    idle_timeout_s: float = 60.0
    port: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        if self.model is not None and not self.model.strip():
            raise ConfigError(field="draft.model", value=self.model, allowed='"bundled", a folder, or null')
        if not all(name.strip() for name in self.heads) or len(set(self.heads)) != len(self.heads):
            raise ConfigError(field="draft.heads", value=self.heads, allowed='folders or "mtp", each once')
        check_range("draft.num_speculative_tokens", self.num_speculative_tokens, 1, 64)
        check_range("draft.tree_nodes", self.tree_nodes, 0, 256)
        check_range("draft.tree_branches", self.tree_branches, 2, 16)
        check_range("draft.max_fan_out", self.max_fan_out, 1, 64)
        check_range("draft.kv_cache_tokens", self.kv_cache_tokens, 256, 1 << 32)
        check_range("draft.max_model_len", self.max_model_len, 0, 1 << 24)
        check_range("draft.max_sequences", self.max_sequences, 1, 1 << 16)
        check_range("draft.num_threads", self.num_threads, 1, 1024)
        check_range("draft.draft_wait_s", self.draft_wait_s, 0, 1, kind="seconds")
        check_range("draft.idle_timeout_s", self.idle_timeout_s, 1, 86_400, kind="seconds")
        check_range("draft.port", self.port, 0, 65_535)


def check_trees(engine: EngineConfig, draft: DraftConfig) -> None:
    """Refuse trees where nobody makes them, or the acceptance rule takes none.

    Raises:
        ConfigError: `draft.tree_nodes` is set, and something else forbids it.
    """
    if not draft.tree_nodes:
        return
    if not draft.heads:
        raise ConfigError(field="draft.tree_nodes", value=draft.tree_nodes, allowed="0: no draft.heads make trees")
    if engine.acceptance != "coupled":
        because = f"engine.acceptance = {engine.acceptance!r} takes chains only"
        raise ConfigError(field="draft.tree_nodes", value=draft.tree_nodes, allowed=f"0: {because}")


def draft_model_for(target: str, wanted: str | None) -> str | None:
    """The draft model in force: what was asked for, or the bundled one beside the bundled target."""
    is_bundled = wanted is None and target == BUNDLED and BUNDLED_DRAFT_FOLDER.is_dir()
    return BUNDLED if is_bundled else wanted


def _check_choice(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(field=field, value=value, allowed=f"one of {', '.join(allowed)}")
