"""Alert rules of drafters, acceptance and the controller."""

from cluster.telemetry.dashboards.model import Needs
from cluster.telemetry.dashboards.rule import Rule, Severity

_DRAFTED = "sum by (job) (rate(vllm:spec_decode_num_draft_tokens_total[10m]))"
_ACCEPTANCE = f"sum by (job) (rate(vllm:spec_decode_num_accepted_tokens_total[10m])) / ({_DRAFTED} > 0)"
_DRAFTS_ENOUGH = f"and on (job) ({_DRAFTED} > 1)"
_MISSING = 'sum by (job) (rate(outrider_draft_fallbacks_total{reason!="unprofitable"}[10m]))'
_ASKED = " + ".join(f"sum by (job) (rate(outrider_draft_{kind}_total[10m]))" for kind in ("lookups", "fallbacks"))
_SPENT, _PLAIN = (
    f'sum by (job) (rate(outrider_{kind}_seconds_total{{role="speculative"}}[10m]))'
    for kind in ("busy", "counterfactual")
)

SPECULATION = (
    Rule(
        name="OutriderDrafterGone",
        signal="sum by (job) ((1 - outrider_drafter_connected) * on (job, engine) "
        'group_left () (outrider_layout{kind="actor"} == 1))',
        wrong="> 0",
        lasting="3m",
        severity=Severity.WARNING,
        summary="{{ $value }} verifiers have no drafter actor although they are set up for one.",
        runbook="Answers stay right, they are only slower. Look at the Drafter deployment on the Serve page of the "
        "Ray dashboard: not there, or dying (its log says why). Running: the verifiers cannot reach it; check the "
        "network policy for the port of draft.port.",
        needs=Needs.DRAFTER,
    ),
    Rule(
        name="OutriderDraftFallbacks",
        signal=f"({_MISSING}) / ({_ASKED} > 0)",
        wrong="> 0.5",
        lasting="10m",
        severity=Severity.WARNING,
        summary="{{ $value | humanizePercentage }} of the sequences do without their drafter actor.",
        runbook="The panel Why sequences did without, on the Speculation dashboard, says why. disconnected: see "
        "OutriderDrafterGone. quarantined: the drafter is silent, late or wrong. capacity or lost: add drafters, "
        "or raise draft.max_sequences and draft.kv_cache_tokens.",
        needs=Needs.DRAFTER,
    ),
    Rule(
        name="OutriderSpeculationDoesNotPay",
        signal=f"{_PLAIN} / ({_SPENT} > 0)",
        wrong=f"< 0.97 {_DRAFTS_ENOUGH}",
        lasting="10m",
        severity=Severity.WARNING,
        summary="Mean acceptance length under break-even: {{ $value | humanize }} times the speed of plain decoding.",
        runbook="Rounds with drafts cost more than they bring. See acceptance by drafter and by domain. Is "
        "engine.draft_budget `measured`? Are the step times those of this machine (`outrider calibrate`)? Until it "
        "is found: drafter=ngram, or num_speculative_tokens lower.",
    ),
    Rule(
        name="OutriderAcceptanceNearZero",
        signal=_ACCEPTANCE,
        wrong=f"< 0.02 {_DRAFTS_ENOUGH}",
        lasting="15m",
        severity=Severity.WARNING,
        summary="Only {{ $value | humanizePercentage }} of the draft tokens are accepted.",
        runbook="Drafts are as good as random. Was the target or the draft model changed without the other? See "
        "acceptance by drafter: one source, or all? All: the answers may be garbage, read some. Text stays what "
        "the target says, only speed is lost.",
    ),
    Rule(
        name="OutriderAcceptanceNearOne",
        signal=_ACCEPTANCE,
        wrong=f"> 0.98 {_DRAFTS_ENOUGH}",
        lasting="15m",
        severity=Severity.WARNING,
        summary="{{ $value | humanizePercentage }} of the draft tokens are accepted.",
        runbook="Text that can be guessed so well mostly repeats itself. Read some answers: a loop wastes tokens "
        "until max_tokens; a repetition penalty or a lower max_tokens helps. Copying or test traffic is harmless.",
    ),
)

POOLS = (
    Rule(
        name="OutriderControllerOscillates",
        signal="min by (job) (sum by (job, role) (increase(outrider_pool_moves_total[15m])))",
        wrong="> 3",
        lasting="0m",
        severity=Severity.WARNING,
        summary="Verifiers moved {{ $value | humanize }} times each way in 15 minutes.",
        runbook="The pools follow a load that changes faster than moves pay. See Last moves on the Pools "
        "dashboard. Raise pools.cooldown_s and pools.hold_s, or fix the split for a while: "
        "`outrider pools pin N --seconds S`.",
        needs=Needs.POOLS,
    ),
    Rule(
        name="OutriderControllerSilent",
        signal="max by (job) (outrider_heartbeat_reply_age_seconds)",
        wrong="> 10",
        lasting="2m",
        severity=Severity.WARNING,
        summary="A verifier has not heard of the controller for {{ $value | humanizeDuration }}.",
        runbook="Roles stay as they are and clients notice nothing, but the pools no longer follow the load. Look "
        "at the Controller deployment on the Serve page of the Ray dashboard; it may be killed at any time, its "
        "state is soft.",
        needs=Needs.POOLS,
    ),
)
