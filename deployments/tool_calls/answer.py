"""From the parser's events to OpenAI's `tool_calls`, whole or as deltas."""

import hashlib
from dataclasses import dataclass
from typing import Any

from deployments.tool_calls.parser import CallArguments, CallStart, Content, Event, Parser
from deployments.tool_calls.plan import ToolPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a piece of an answer comes to.

    Attributes:
        content: new text.
        calls: entries of `delta.tool_calls`, at most one per call.
    """

    content: str = ""
    calls: tuple[dict[str, Any], ...] = ()


class ToolAnswer:
    """One choice's answer on its way.

    Args:
        plan: of the request.
        key: unique to the choice; the ids of its calls are made of it.

    Attributes:
        num_calls: found so far.
    """

    def __init__(self, plan: ToolPlan, key: str) -> None:
        self._parser: Parser | None = plan.parser()
        self._key, self._has_short_ids = key, plan.has_short_ids
        self.num_calls = 0

    def feed(self, text: str, *, is_last: bool = False) -> Piece:
        """Take the next piece of text; with the last one, what was held back comes as well."""
        if self._parser is None:
            return Piece(content=text)
        events = self._parser.feed(text)
        if is_last:
            events += self._parser.finish()
        return self._piece(events)

    def _piece(self, events: list[Event]) -> Piece:
        content, calls = "", dict[int, dict[str, Any]]()
        for event in events:
            match event:
                case Content(text):
                    content += text
                case CallStart(name):
                    call_id = make_call_id(self._key, self.num_calls, is_short=self._has_short_ids)
                    function = {"name": name, "arguments": ""}
                    calls[self.num_calls] = {
                        "index": self.num_calls, "id": call_id, "type": "function", "function": function,
                    }  # fmt: skip
                    self.num_calls += 1
                case CallArguments(text):
                    index = self.num_calls - 1
                    entry = calls.setdefault(index, {"index": index, "function": {"arguments": ""}})
                    entry["function"]["arguments"] += text
        return Piece(content=content, calls=tuple(calls.values()))


def read_answer(plan: ToolPlan, key: str, text: str) -> Piece:
    """Content and calls of a whole answer."""
    return ToolAnswer(plan, key).feed(text, is_last=True)


def make_call_id(key: str, index: int, *, is_short: bool) -> str:
    """Id of a call: the same in a streamed and in a whole answer, and different in every other one."""
    digest = hashlib.blake2b(f"{key}:{index}".encode(), digest_size=12).hexdigest()
    return digest[:9] if is_short else f"call_{digest}"
