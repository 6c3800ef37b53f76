"""Values that cross package borders: what a request asks for and what the engine answers.

Everything here is frozen and free of torch, Ray and HTTP.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

GRAMMAR_FAILED = "grammar_failed"
"""`stop_reason` of a choice whose grammar took more work than allowed, or left no token."""


class FinishReason(StrEnum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    DEADLINE = "deadline"
    ERROR = "error"


class SpeculationMode(StrEnum):
    """What a request says about speculation."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Role(StrEnum):
    """What a verifier replica does now; the replicas of one role are a pool."""

    SPECULATIVE = "speculative"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of one choice are drawn. Every field is resolved: no None means "default".

    Attributes:
        max_tokens: most output tokens, >= 1.
        seed: 64-bit unsigned seed of the noise; a request without one gets one at the gateway.
        temperature: 0 is greedy, else logits are divided by it.
        top_k: keep the k largest logits; 0 keeps all.
        top_p: keep the smallest set with at least this probability; 1 keeps all.
        min_p: drop tokens below this share of the largest probability; 0 keeps all.
        repetition_penalty: divides positive, multiplies negative logits of tokens seen in prompt or output; 1 is off.
        presence_penalty: subtracted once from tokens seen in the output.
        frequency_penalty: subtracted per occurrence in the output.
        logit_bias: (token id, bias) pairs added to the logits.
        allowed_token_ids: if not empty, all other tokens are masked.
        bad_words: token sequences that may not be completed.
        min_tokens: EOS and stop token ids are masked before this many output tokens.
        ignore_eos: EOS does not end the choice.
        stop_token_ids: ids that end the choice besides EOS.
        stop: strings that end the choice; text is cut before them.
        include_stop_str_in_output: keep the stop string in the text.
        skip_special_tokens: leave special tokens out of the text.
        logprobs: None for none, else how many top alternatives (0..20) besides the chosen token.
        prompt_logprobs: None for none, else top alternatives per prompt token.
    """

    max_tokens: int
    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationParams:
    """Per-request wishes about speculation.

    Attributes:
        mode: auto lets the engine decide, off never drafts.
        num_speculative_tokens: upper limit K for this request; None takes the engine's.
        drafter: name of the drafter to use; None lets the engine choose.
    """

    mode: SpeculationMode = SpeculationMode.AUTO
    num_speculative_tokens: int | None = None
    drafter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One choice to generate. A client's request with n > 1 becomes n of these.

    Attributes:
        request_id: unique per choice, e.g. "chatcmpl-7f..-0".
        prompt_token_ids: at least one id.
        sampling: how tokens are drawn.
        speculation: wishes about drafting.
        priority: lower runs first.
        deadline_s: clock time after which the choice ends with reason deadline; None for never.
        cache_salt: prefix-cache namespace; requests of different salts never share blocks.
        arrival_s: clock time of arrival at the engine.
        domain: kind of text, given or detected; statistics are kept by it. "" for unknown.
        trace: context of the choice's span, for drafters; empty where the request is not traced.
        output_token_ids: what an earlier attempt brought: it counts as output in every way, and is not emitted again.
        grammar: that the output must follow, as `cluster.grammar.source` serialises it; "" for none.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    speculation: SpeculationParams = field(default_factory=SpeculationParams)
    priority: int = 0
    deadline_s: float | None = None
    cache_salt: str = ""
    arrival_s: float = 0.0
    domain: str = ""
    trace: bytes = b""
    output_token_ids: tuple[int, ...] = ()
    grammar: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Log-probabilities (natural log) at one position, under the raw model distribution.

    Attributes:
        token_id: the token at this position.
        logprob: its log-probability.
        rank: 1 for the most likely token.
        top: (token id, logprob) of the most likely tokens, best first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationStats:
    """What speculation did for one choice so far; counts only what was really drafted.

    Attributes:
        num_rounds: target passes that emitted tokens.
        num_drafts: rounds with at least one draft token.
        num_draft_tokens: draft tokens verified, all branches of a tree.
        num_draft_levels: most of them that could have been accepted, the depths of trees and the lengths of chains;
            0 where all drafts were chains.
        num_accepted_tokens: draft tokens accepted.
        accepted_per_draft: number of accepted tokens in each drafted round, as a histogram
            (index = accepted count).
        entropy_bits_sum: the target's entropy, summed over the output tokens.
    """

    num_rounds: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_draft_levels: int = 0
    num_accepted_tokens: int = 0
    accepted_per_draft: tuple[int, ...] = ()
    entropy_bits_sum: float = 0.0

    @property
    def num_acceptable_tokens(self) -> int:
        """Most draft tokens that could have been accepted: what an acceptance rate is a share of."""
        return self.num_draft_levels or self.num_draft_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRecord:
    """How a choice went, for traces.

    Attributes:
        first_scheduled_s: clock time at which it left the queue; None if it never did.
        num_preemptions: how often it lost its KV blocks.
        draft_sources: who made its drafts, first used first.
    """

    first_scheduled_s: float | None = None
    num_preemptions: int = 0
    draft_sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """What one round added to one choice.

    Attributes:
        request_id: the choice.
        text: new text; may be empty while bytes or a possible stop string are held back.
        token_ids: new token ids that count as output (a stop token is included).
        logprobs: one entry per id in token_ids when asked for, else empty.
        prompt_logprobs: set once, with the first output, when asked for; index 0 is None.
        finish_reason: None while the choice goes on.
        stop_reason: the stop string or stop token id that ended it, if one did; `GRAMMAR_FAILED` beside reason error
            where the grammar could not be followed any further.
        num_prompt_tokens: length of the prompt.
        num_output_tokens: output tokens so far, including these.
        num_cached_tokens: prompt tokens that came from the prefix cache.
        speculation: totals so far; set on the last output.
        record: how the choice went; set on the last output.
    """

    request_id: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    speculation: SpeculationStats | None = None
    record: ChoiceRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStats:
    """What became of one drafter's drafts.

    Attributes:
        source: the drafter's name.
        num_drafts: drafts verified.
        num_draft_tokens: their tokens.
        num_accepted_tokens: of those.
    """

    source: str
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterStats:
    """What a verifier saw of its drafter actors so far; every count only rises.

    Attributes:
        lookups: sequences that looked for a draft, by what came of it: hit, late, stale, miss or none.
        fallbacks: sequences that had to do without the drafter in a round, by reason.
        transitions: changes of what the verifier thinks of its drafter, by reason.
        is_connected: a drafter has welcomed this verifier.
        is_quarantined: the drafter is left alone, or on probation.
        num_sent: messages.
        num_received: messages.
        num_dropped: messages that found no place in a queue.
        num_malformed: pieces that were no valid message, and tables that held no valid token ids.
        num_sent_bytes: encoded.
        num_received_bytes: encoded.
    """

    lookups: Mapping[str, int] = field(default_factory=dict)
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    transitions: Mapping[str, int] = field(default_factory=dict)
    is_connected: bool = False
    is_quarantined: bool = False
    num_sent: int = 0
    num_received: int = 0
    num_dropped: int = 0
    num_malformed: int = 0
    num_sent_bytes: int = 0
    num_received_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainWork:
    """What one round did for the sequences of one domain.

    Attributes:
        domain: as in `Request`.
        num_sequences: that had rows.
        num_rows: in the forward pass, drafts included.
        num_output_tokens: tokens committed.
        num_draft_tokens: draft tokens verified.
        num_accepted_tokens: of those.
    """

    domain: str
    num_sequences: int = 0
    num_rows: int = 0
    num_output_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one round did, and the load right after it.

    Attributes:
        duration_s: wall time of the round.
        forward_s: time in the target's forward pass.
        sampling_s: time in which the target's tokens were drawn; 0 where it is not kept apart.
        num_rows: rows in the forward pass.
        num_sequences: whose rows they are.
        num_context_tokens: KV entries in front of their rows, summed.
        num_prompt_tokens: prompt tokens computed.
        num_cached_tokens: prompt tokens taken from the prefix cache.
        num_output_tokens: tokens committed.
        num_drafts: sequences that had a draft.
        num_draft_tokens: draft tokens verified.
        num_tried_tokens: of those, the ones whose predecessors in the draft were all accepted; siblings count as one.
        accepted_per_position: accepted draft tokens by position in the draft, in a tree by depth.
        draft_sources: the drafts by who made them.
        domains: the rows and tokens by domain.
        draft_wait_s: time in which the round waited for drafts.
        is_overlapped: only half of the decoding sequences had rows; drafts for the other half were made meanwhile.
        hidden_draft_s: time in which that half's drafts were made while the forward pass ran.
        num_drafter_failures: errors of drafters; each costs drafts, nothing else.
        draft_limits: sequences that could have drafted and did not, by reason.
        calibration_errors: by source, how far the chances that drafts are ranked by were off lately, 0..1; empty in
            most rounds, since it changes slowly.
        entropy_bits: the target's entropy at each committed token.
        num_preempted: sequences that lost their blocks.
        num_running: sequences running after the round.
        num_waiting: sequences waiting after the round.
        kv_cache_usage_ratio: used share of the KV blocks, 0..1.
    """

    duration_s: float = 0.0
    forward_s: float = 0.0
    sampling_s: float = 0.0
    num_rows: int = 0
    num_sequences: int = 0
    num_context_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_tried_tokens: int = 0
    accepted_per_position: tuple[int, ...] = ()
    draft_sources: tuple[SourceStats, ...] = ()
    domains: tuple[DomainWork, ...] = ()
    draft_wait_s: float = 0.0
    is_overlapped: bool = False
    hidden_draft_s: float = 0.0
    num_drafter_failures: int = 0
    draft_limits: Mapping[str, int] = field(default_factory=dict)
    calibration_errors: Mapping[str, float] = field(default_factory=dict)
    entropy_bits: tuple[float, ...] = ()
    num_preempted: int = 0
    num_running: int = 0
    num_waiting: int = 0
    kv_cache_usage_ratio: float = 0.0
