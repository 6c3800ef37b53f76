"""The Serve application: `serve run deployments.app:app`, or `deployments.app:build_app` with arguments."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from autoscaling.pool_config import PoolConfig
from cluster.config import DraftConfig, EngineConfig, check_trees, draft_model_for
from cluster.errors import ConfigError
from cluster.routing.policies import PolicyName
from cluster.telemetry.cost import CostConfig
from cluster.telemetry.tracing_config import TracingConfig
from deployments.admission import AdmissionConfig
from deployments.bindings import bind_controller, bind_drafter, bind_gateway, bind_verifier
from deployments.drafter_scaling import DrafterScaling
from deployments.layout import DrafterMode
from deployments.limits import Limits
from deployments.placement import Placement, check_gpus
from deployments.tool_calls.framing import ParserName
from deployments.verifier_config import RoleSeats

if TYPE_CHECKING:
    from ray.serve import Application


class AppArgs(BaseModel):
    """Arguments of the application; a Serve YAML passes the same as `args`.

    Serve replaces every replica, a few at a time, when an argument changes. Some can change without that, as
    `user_config` of a deployment in the Serve file, where they win over the arguments: of `Gateway` limits,
    default_timeout_s, keep_alive_s, max_resumes, routing and stream_obfuscation; of `Verifier` admission and
    stream_interval_s; of `Controller` (without the word `pools`) the settings of pools, but not the seats, the numbers
    of replicas, the heartbeat, and what predictions assume.

    Attributes:
        engine: settings of `cluster.config.EngineConfig`.
        admission: bounds of each verifier's queue.
        limits: bounds on requests.
        drafter: who drafts: `actor` (the Drafter deployment, ahead of the verdict), `local` (the draft model in the
            verifier), `ngram` (prompt lookup, no draft model), `off` (nobody), or `auto`: measured at start-up.
        draft: the draft model and its limits, and `draft.heads`, which draft in the verifier beside any `drafter` but
            `off`.
        served_model_name: what clients call the model; None takes the engine's name.
        api_keys_file: file with one API key per line; keys also come from OUTRIDER_API_KEYS.
        default_timeout_s: deadline of requests that bring none.
        keep_alive_s: idle time after which a stream carries a comment.
        max_resumes: how many verifiers a request may lose: each time another one goes on with it, unseen by the client.
            0 lets the first loss end it.
        stream_interval_s: longest time between two events of a stream under load.
        stream_obfuscation: pad the chunks of streams, so that who watches encrypted traffic cannot count the tokens in
            them; a request may ask for it, or against it, with `stream_options.include_obfuscation`.
        num_verifiers: verifier replicas, where `pools` has no bounds for their number.
        num_drafters: drafter replicas, where `drafter_scaling` does not decide.
        num_gateways: gateway replicas.
        drafter_scaling: adds and removes drafters by the share of tables that come too late.
        drafter_placement: which nodes drafters run on.
        drafter_cpus: CPUs that Ray reserves for a drafter.
        drafter_gpus: GPUs that Ray reserves for a drafter: a share of one, or whole ones.
        pools: how verifiers are divided between the roles speculative and batch. None leaves a single verifier in role
            speculative with `engine.max_num_seqs`, and takes the defaults of `PoolConfig` for two and more.
        routing: policy that chooses the pool: `learned`, or `rules` (those of the seed documents).
        drain_timeout_s: how long a gateway or verifier that is removed may go on with its streams before they are cut.
        tool_call_parser: how the model writes tool calls where it is free to make them: `hermes`, `llama3_json`,
            `mistral`, `none` (calls stay in the text), or `auto`: read off its chat template.
        verifier_cpus: CPUs that Ray reserves for a verifier.
        gateway_cpus: CPUs that Ray reserves for a gateway.
        cost: prices of the GPUs and CPUs that verifiers and drafters hold, for metrics and `outrider cost`.
        tracing: where the spans of traces go; None for no traces.
        ray_metrics: copy all metrics to Ray's own every few seconds, for its exporter and dashboard.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: EngineConfig = EngineConfig()
    admission: AdmissionConfig = AdmissionConfig()
    limits: Limits = Limits()
    drafter: DrafterMode = "auto"
    draft: DraftConfig = DraftConfig()
    served_model_name: Annotated[str, Field(pattern=r"^\S{1,256}$")] | None = None
    api_keys_file: str | None = None
    default_timeout_s: Annotated[float, Field(gt=0)] | None = None
    keep_alive_s: Annotated[float, Field(gt=0)] = 15.0
    max_resumes: Annotated[int, Field(ge=0, le=100)] = 3
    stream_interval_s: Annotated[float, Field(ge=0, le=10)] = 0.3
    stream_obfuscation: bool = False
    num_verifiers: Annotated[int, Field(ge=1)] = 1
    num_drafters: Annotated[int, Field(ge=1, le=1024)] = 1
    num_gateways: Annotated[int, Field(ge=1)] = 1
    drafter_scaling: DrafterScaling | None = None
    drafter_placement: Placement = Placement()
    pools: PoolConfig | None = None
    routing: PolicyName = "learned"
    drain_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    tool_call_parser: ParserName = "auto"
    drafter_cpus: Annotated[float, Field(ge=0)] = 0.5
    drafter_gpus: Annotated[float, Field(ge=0)] = 0.0
    verifier_cpus: Annotated[float, Field(ge=0)] = 1.0
    gateway_cpus: Annotated[float, Field(ge=0)] = 0.1
    cost: CostConfig = CostConfig()
    tracing: TracingConfig | None = None
    ray_metrics: bool = True

    @property
    def draft_model(self) -> str | None:
        """The draft model in force: what was set, or the bundled one beside the bundled target."""
        return draft_model_for(self.engine.model, self.draft.model)

    @property
    def effective_drafter(self) -> DrafterMode:
        """`drafter`, where `auto` is settled when there is nothing to choose from."""
        if self.engine.num_speculative_tokens == 0 or self.drafter == "off":
            return "off"
        if self.drafter != "auto":
            return self.drafter
        if self.engine.drafter == "off":
            return "ngram" if self.draft.heads else "off"
        return "auto" if self.draft_model else "ngram"

    @property
    def effective_pools(self) -> PoolConfig | None:
        """The pools in force; predictions reckon with no longer drafts than the engine makes."""
        if self.pools is None and self.num_verifiers == 1:
            return None
        pools = self.pools or PoolConfig()
        longest = 0 if self.effective_drafter == "off" else self.engine.num_speculative_tokens
        return replace(pools, num_speculative_tokens=min(pools.num_speculative_tokens, longest))

    @property
    def most_verifiers(self) -> int:
        """How many verifiers there are at most."""
        return self.num_verifiers if self.pools is None else self.pools.max_replicas or self.num_verifiers

    @property
    def seats(self) -> RoleSeats | None:
        """Sequences of a verifier by role; None where `engine.max_num_seqs` counts."""
        pools = self.effective_pools
        if pools is None:
            return None
        return RoleSeats(speculative=pools.speculative_max_num_seqs, batch=pools.batch_max_num_seqs)

    @model_validator(mode="after")
    def _check_pools(self) -> "AppArgs":
        """Refuse settings of the pools that contradict others."""
        if self.pools is not None and self.pools.max_replicas is not None and self.num_verifiers != 1:
            raise ConfigError(field="num_verifiers", value=self.num_verifiers, allowed="1 beside pools.max_replicas")
        if self.seats is not None:
            self.seats.check(self.engine.max_num_batched_tokens)
        return self

    @model_validator(mode="after")
    def _check_drafter(self) -> "AppArgs":
        """Refuse settings that contradict each other."""
        check_gpus("drafter_gpus", self.drafter_gpus)
        check_trees(self.engine, self.draft)
        because = f"since drafter = {self.drafter!r}"
        if self.drafter in ("actor", "local"):
            if self.draft_model is None:
                raise ConfigError(field="draft.model", value=None, allowed=f"a folder with a draft model, {because}")
            if self.engine.num_speculative_tokens == 0:
                raise ConfigError(field="engine.num_speculative_tokens", value=0, allowed=f"1 to 64, {because}")
        if self.drafter_scaling is not None:
            if self.drafter not in ("auto", "actor"):
                raise ConfigError(field="drafter_scaling", value=self.drafter_scaling, allowed=f"null, {because}")
            if self.num_drafters != 1:
                raise ConfigError(field="num_drafters", value=self.num_drafters, allowed="1 beside drafter_scaling")
        return self


def build_app(args: AppArgs) -> "Application":
    """The application: a gateway bound to verifiers, those to drafters and a controller. Loads nothing; replicas do.

    Args:
        args: checked arguments.
    """
    from ray import serve

    deployment: Any = serve.deployment  # its annotations do not know that a class may be given directly
    drafter = bind_drafter(deployment, args)
    controller = bind_controller(deployment, args)
    verifier = bind_verifier(deployment, args, drafter, controller)
    return bind_gateway(deployment, args, verifier, drafter, controller)


app = build_app(AppArgs())
