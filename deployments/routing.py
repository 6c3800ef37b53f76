"""Where a request of this gateway goes: its domain, the snapshot it is judged by, and the policy's route."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cluster.routing.domains import detect, detect_chat
from cluster.routing.policies import PolicyName, choose
from cluster.routing.types import Domain, Route, RouteRequest, RouteSnapshot
from cluster.types import Role, SpeculationMode
from deployments.schema import SamplingBody
from deployments.schema_openai import ChatCompletionRequest, CompletionRequest
from deployments.schema_seed import SeedRequest

DETECT_TOKENS = 256
"""A prompt of token ids is decoded so far, to guess its domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What was decided for a request before it is prepared.

    Attributes:
        route: pool, reason, inputs, and whether anybody may draft.
        domain: given by the client, else detected.
    """

    route: Route
    domain: Domain


class AcceptanceWindow:
    """Acceptance rate over the last requests that drafted.

    Args:
        size: requests remembered.
    """

    def __init__(self, size: int = 64) -> None:
        self._entries: deque[tuple[int, int]] = deque(maxlen=size)

    def add(self, num_accepted: int, num_drafted: int) -> None:
        """A request ended."""
        if num_drafted:
            self._entries.append((num_accepted, num_drafted))

    @property
    def rate(self) -> float:
        """Accepted / drafted; 1 while nothing was drafted."""
        drafted = sum(entry[1] for entry in self._entries)
        return sum(entry[0] for entry in self._entries) / drafted if drafted else 1.0


class Router:
    """Routes the requests of one gateway.

    Args:
        policy: for the OpenAI routes; the seed documents' service always follows their five rules.
        max_model_len: bounds the output of requests that name no limit.
        pools: what is known of the verifiers' pools; None where there are none.
    """

    def __init__(
        self, policy: PolicyName, max_model_len: int, pools: Callable[[], RouteSnapshot] | None = None
    ) -> None:
        self.policy, self._max_model_len, self._pools = policy, max_model_len, pools
        self.acceptance = AcceptanceWindow()

    def snapshot(self, num_active: int) -> RouteSnapshot:
        """What a decision stands on now.

        Args:
            num_active: requests in progress besides the one to be routed.
        """
        known = RouteSnapshot() if self._pools is None else self._pools()
        return replace(known, num_active=num_active, acceptance_rate=self.acceptance.rate)

    def chat(self, body: ChatCompletionRequest, num_prompt_tokens: int, num_active: int) -> Routed:
        """A chat completion; its domain is guessed from the user's last messages and the system prompt."""
        domain = body.domain and Domain(body.domain)
        if domain is None:
            turns = [message.text for message in body.messages if message.role == "user"]
            system = next((m.text for m in body.messages if m.role in ("system", "developer")), "")
            must_call = body.tool_choice not in (None, "none", "auto")
            domain = detect_chat(turns, system, "tool_calls" if must_call else body.json_form).domain
        max_tokens = body.max_completion_tokens or body.max_tokens
        return self._openai(body, domain, num_prompt_tokens, max_tokens, num_active)

    def completion(
        self, body: CompletionRequest, prompts: Sequence[Sequence[int]], decode: Callable[[list[int]], str], active: int
    ) -> Routed:
        """A text completion; the first of its prompts stands for all.

        Args:
            body: the request.
            prompts: its prompts as token ids.
            decode: text of token ids.
            active: requests in progress besides this one.
        """
        domain = body.domain and Domain(body.domain)
        if domain is None:
            first = body.prompts[0]
            text = first if isinstance(first, str) else decode(first[:DETECT_TOKENS])
            domain = detect(text, body.json_form).domain
        return self._openai(body, domain, max(map(len, prompts)), body.max_tokens, active)

    def seed(self, body: SeedRequest, num_active: int) -> Routed:
        """A request of the seed documents' service."""
        force = {True: SpeculationMode.ON, False: SpeculationMode.OFF, None: SpeculationMode.AUTO}
        request = RouteRequest(
            mode=force[body.force_speculative],
            domain=Domain(body.domain),
            is_domain_given="domain" in body.model_fields_set,
            temperature=body.temperature,
            max_tokens=body.max_tokens,
        )
        return Routed(route=choose("rules", request, self.snapshot(num_active)), domain=request.domain)

    def _openai(
        self, body: SamplingBody, domain: Domain, num_prompt_tokens: int, max_tokens: int | None, num_active: int
    ) -> Routed:
        room = max(1, self._max_model_len - num_prompt_tokens)
        mode, only_pool = speculation_wish(body)
        request = RouteRequest(
            mode=mode,
            service_tier=body.service_tier,
            domain=domain,
            is_domain_given=body.domain is not None,
            temperature=1.0 if body.temperature is None else body.temperature,
            num_prompt_tokens=num_prompt_tokens,
            max_tokens=min(max_tokens or room, room),
            only_pool=only_pool,
        )
        return Routed(route=choose(self.policy, request, self.snapshot(num_active)), domain=domain)


def speculation_wish(body: SamplingBody) -> tuple[SpeculationMode, Role | None]:
    """What a request says about speculation, and the one pool that can do it.

    No draft tokens at all is another word for off; a named drafter or draft length exists only where there is drafting.
    """
    wish = body.speculation
    if wish is None:
        return SpeculationMode.AUTO, None
    if wish.mode == "auto" and wish.num_speculative_tokens == 0:
        return SpeculationMode.OFF, None
    asks_for_drafts = wish.drafter is not None or wish.num_speculative_tokens is not None
    return SpeculationMode(wish.mode), Role.SPECULATIVE if asks_for_drafts else None
