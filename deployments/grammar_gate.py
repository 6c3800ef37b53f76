"""From the form that a request demands to a grammar that is known to compile, off the event loop and within limits."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.errors import GrammarError, InvalidRequestError
from cluster.grammar import source
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from deployments.schema import SamplingBody
from deployments.schema_structured import StructuredOutputs
from deployments.worker_pool import grammar_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of the answer that a request demands.

    Attributes:
        param: the field that demands it.
        grammar: writes it as a grammar; may raise GrammarError, and may take long.
    """

    param: str
    grammar: Callable[[GrammarLimits], str]


class GrammarGate:
    """Compiles the grammars of requests before they go to a verifier, which then has no reason to refuse them.

    Args:
        compiler: for the model's tokenizer.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._workers = grammar_workers()

    def warm_up(self) -> None:
        """Read the vocabulary, during which no other thread runs: for the time before there are requests."""
        self._compiler.warm_up()

    async def grammar(self, form: Form | None) -> str:
        """The form as a grammar; empty for none.

        Raises:
            InvalidRequestError: it is too large, cannot be compiled, or takes too long.
            UnavailableError: too many grammars are being compiled.
        """
        if form is None:
            return ""
        limits = self._compiler.limits
        try:
            return await self._workers.run(lambda: self._compile(form, limits), limits.compile_timeout_s)
        except TimeoutError:
            raise InvalidRequestError(
                f"{form.param} takes longer than {limits.compile_timeout_s:g} seconds to compile",
                param=form.param,
                code="compile_timeout_s",
            ) from None

    def close(self) -> None:
        """Let the workers go."""
        self._workers.close()

    def _compile(self, form: Form, limits: GrammarLimits) -> str:
        try:
            grammar = form.grammar(limits)
            self._compiler.check(grammar)
        except GrammarError as error:
            raise InvalidRequestError(
                f"{form.param}: {error.message}", param=form.param, code="invalid_grammar"
            ) from error
        return grammar


def form_of(body: SamplingBody) -> Form | None:
    """The form that `response_format` or `structured_outputs` demands; None where the answer is free."""
    wish = body.response_format
    if wish is not None and wish.type == "json_object":
        return Form(param="response_format", grammar=source.json_object_grammar)
    if wish is not None and wish.json_schema is not None:
        return schema_form(wish.json_schema.schema_, "response_format.json_schema.schema")
    return None if body.structured_outputs is None else _structured(body.structured_outputs)


def schema_form(schema: Mapping[str, Any] | bool, param: str) -> Form:
    """JSON of a schema."""
    return Form(param=param, grammar=lambda limits: source.json_schema_grammar(schema, limits))


def _structured(wish: StructuredOutputs) -> Form:
    regex, choices, grammar, schema = wish.regex, wish.choice, wish.grammar, wish.json_
    if regex is not None:
        return Form(param="structured_outputs.regex", grammar=lambda limits: source.regex_grammar(regex, limits))
    if choices is not None:
        return Form(param="structured_outputs.choice", grammar=lambda limits: source.choice_grammar(choices, limits))
    if grammar is not None:
        return Form(param="structured_outputs.grammar", grammar=lambda limits: source.ebnf_grammar(grammar, limits))
    if schema is None:
        return Form(param="structured_outputs.json_object", grammar=source.json_object_grammar)
    param = "structured_outputs.json"
    if isinstance(schema, str):
        return Form(param=param, grammar=lambda limits: source.json_schema_grammar(_parsed(schema), limits))
    return schema_form(schema, param)


def _parsed(text: str) -> dict[str, Any] | bool:
    """A schema that is sent as JSON text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the schema is no JSON: {error}") from error
    if not isinstance(value, dict | bool):
        raise GrammarError("a schema is a JSON object, or true or false")
    return value
