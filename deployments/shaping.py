"""What a request makes of its prompt and demands of its answer's form: rendering, tools, grammars."""

from dataclasses import dataclass

from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from deployments.chat_template import ChatRenderer
from deployments.codec import TextCodec, Tokenizer
from deployments.grammar_gate import GrammarGate, form_of, schema_form
from deployments.limits import Limits
from deployments.schema import SamplingBody
from deployments.schema_openai import ChatCompletionRequest, ChatMessage, TokenizeRequest
from deployments.tool_calls.framing import ParserName
from deployments.tool_calls.plan import ToolPlan, ToolPlanner


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A chat completion before it is routed.

    Attributes:
        prompt_ids: the conversation.
        grammar: that answers must follow; empty for none.
        tools: that may be called; None for none.
    """

    prompt_ids: list[int]
    grammar: str = ""
    tools: ToolPlan | None = None


class Shaper:
    """Shapes the requests of one gateway.

    Args:
        tokenizer: the model's.
        codec: around it.
        vocab_size: the model's.
        limits: bounds on requests.
        parser: how tool calls are found in answers.
        grammar: bounds of grammars.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        codec: TextCodec,
        *,
        vocab_size: int,
        limits: Limits,
        parser: ParserName,
        grammar: GrammarLimits,
    ) -> None:
        self._template, self._parser, self._codec = tokenizer.chat_template, parser, codec
        self.renderer = ChatRenderer(tokenizer, limits.template_timeout_s)
        eos = getattr(tokenizer, "eos_token_id", None)
        ends = frozenset({eos}) if isinstance(eos, int) else frozenset[int]()
        self._gate = GrammarGate(GrammarCompiler(tokenizer, vocab_size, ends, grammar))
        self.configure(limits)

    def configure(self, limits: Limits) -> None:
        """Take other limits."""
        self.renderer.timeout_s = limits.template_timeout_s
        self._planner = ToolPlanner(self._template, self._parser, limits)

    async def chat(self, body: ChatCompletionRequest) -> Shaped:
        """A chat completion.

        Raises:
            RequestError: it cannot be rendered, or what it demands of the answer is refused.
        """
        plan = self._planner.plan(body)
        schema = None if plan is None else plan.schema()
        form = form_of(body) if schema is None else schema_form(schema, "tools")
        grammar = await self._gate.grammar(form)
        text = await self.renderer.render(
            body.messages,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            kwargs=body.chat_template_kwargs,
            tools=() if plan is None else plan.tools,
        )
        prompt_ids = await self._codec.encode(text, add_special_tokens=False)
        return Shaped(prompt_ids=prompt_ids, grammar=grammar, tools=plan)

    async def grammar(self, body: SamplingBody) -> str:
        """The grammar of a text completion; empty for none.

        Raises:
            RequestError: what it demands of the answer is refused.
        """
        return await self._gate.grammar(form_of(body))

    async def text(self, body: TokenizeRequest, messages: list[ChatMessage]) -> str:
        """The text of a conversation that is only to be counted.

        Raises:
            RequestError: it cannot be rendered.
        """
        self._planner.check(body.tools or ())
        return await self.renderer.render(
            messages,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            kwargs=body.chat_template_kwargs,
            tools=body.tools or (),
        )

    def warm_up(self) -> None:
        """Get ready for grammars; nothing else runs meanwhile."""
        self._gate.warm_up()

    def close(self) -> None:
        """Let its workers go."""
        self.renderer.close()
        self._gate.close()
