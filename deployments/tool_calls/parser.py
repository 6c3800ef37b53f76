"""Finds tool calls in an answer, piece by piece.

What is found does not depend on how the text is cut into pieces, so a streamed answer and a whole one agree. Text is a
call from where its name, which is that of a given tool, and the beginning of its arguments stand: from there on it is
told as it comes, in the model's own words, and cannot become anything else. Whatever is malformed before that stays
content. White space around calls is dropped.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from deployments.tool_calls.framing import Framing
from deployments.tool_calls.scanner import ObjectScanner

_BLANK = " \t\r\n"
_HEADER = re.compile(
    r'\{_"name"_:_("(?:[^"\\\x00-\x1f]|\\.){1,512}")_,_"(?:arguments|parameters)"_:_(?=\{)'.replace("_", f"[{_BLANK}]*")
)
_BARE_NAME = re.compile(rf"([\w.-]{{1,128}})(?:\[CALL_ID\]\w{{1,64}})?(?:\[ARGS\])?[{_BLANK}]{{0,8}}(?=\{{)", re.ASCII)
_MAX_BARE_CHARS = 256
"""More than `_BARE_NAME` can match."""

_LEAD, _LIST_LEAD = re.compile(f"[{_BLANK}]*"), re.compile(rf"[{_BLANK}]*\[?[{_BLANK}]*")


@dataclass(frozen=True, slots=True)
class Content:
    """Text that is no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next part of the arguments of the call that began last, as JSON text."""

    text: str


Event = Content | CallStart | CallArguments


class Parser(Protocol):
    """What reads one answer."""

    def feed(self, text: str) -> list[Event]:
        """Take the next piece of the answer."""
        ...

    def finish(self) -> list[Event]:
        """The answer has ended: what was held back."""
        ...


class _Call(msgspec.Struct):
    """A whole call; the arguments stay JSON."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


class NamedParser:
    """An answer that is nothing but the arguments of one call.

    Args:
        name: the tool's.
    """

    def __init__(self, name: str) -> None:
        self._name, self._has_begun = name, False

    def feed(self, text: str) -> list[Event]:
        """Take the next piece of the arguments."""
        if not text:
            return []
        start: list[Event] = [] if self._has_begun else [CallStart(self._name)]
        self._has_begun = True
        return [*start, CallArguments(text)]

    def finish(self) -> list[Event]:
        """Nothing is held back."""
        return []


class FramedParser:
    """An answer with calls in it.

    Each state is a method that reads from `_pending` what it can, and returns whether the next state may go on.

    Args:
        framing: what stands around calls.
        names: of the tools there are.
        max_calls: what follows so many calls is dropped; None for no limit.
    """

    def __init__(self, framing: Framing, names: frozenset[str], max_calls: int | None = None) -> None:
        self._framing, self._names, self._max_calls = framing, names, max_calls
        self._state: Callable[[], bool] = self._begin if framing.first else self._content
        self._pending = self._space = self._opened = ""
        self._events: list[Event] = []
        self._scanner, self._num_scanned = ObjectScanner(), 0
        self._num_calls = 0
        self._may_be_list = framing.in_list
        self._is_last = False

    def feed(self, text: str) -> list[Event]:
        """Take the next piece."""
        self._pending += text
        while self._state():
            pass
        events, self._events = self._events, []
        return events

    def finish(self) -> list[Event]:
        """The end: what may have become a call is content now."""
        self._is_last = True
        events = self.feed("")
        if self._space and not self._num_calls:
            events.append(Content(self._space))
        return events

    def _begin(self) -> bool:
        """The first character may say that the answer is a call."""
        text = self._pending.lstrip(_BLANK)
        if not text and not self._is_last:
            return False
        return self._go(self._head if text.startswith(self._framing.first) else self._content)

    def _content(self) -> bool:
        """Text, up to what announces a call; the beginning of that is held back."""
        opening, text = self._framing.opening, self._pending
        at = text.find(opening) if opening else -1
        if at >= 0:
            self._say(text[:at])
            self._opened, self._pending = opening, text[at + len(opening) :]
            self._may_be_list = self._framing.in_list
            return self._go(self._head)
        num_said = len(text) if self._is_last else len(text) - _num_held(text, opening)
        self._say(text[:num_said])
        self._pending = text[num_said:]
        return False

    def _head(self) -> bool:
        """A call must begin here."""
        lead = (_LIST_LEAD if self._may_be_list else _LEAD).match(self._pending)
        assert lead is not None
        at = lead.end()
        if at == len(self._pending):
            return self._wait()
        if self._num_calls == self._max_calls:
            return self._go(self._drop)
        if self._pending[at] == "{":
            return self._object(at)
        return self._bare_name(at) if self._framing.has_bare_names else self._fall_back()

    def _object(self, at: int) -> bool:
        """A call as an object: told as it comes if its name comes first, else when it is whole."""
        match = _HEADER.match(self._pending, at)
        if match is not None:
            return self._start(_decode_name(match.group(1)), match.end(), self._wrapped_arguments)
        end = self._scanner.end_in(self._pending, max(at, self._num_scanned))
        if end is None:
            self._num_scanned = len(self._pending)
            return self._wait()
        name, arguments = _decode_call(self._pending[at:end])
        return self._start(name, end, self._after, arguments)

    def _bare_name(self, at: int) -> bool:
        match = _BARE_NAME.match(self._pending, at)
        if match is not None:
            return self._start(match.group(1), match.end(), self._arguments)
        return self._wait() if len(self._pending) - at < _MAX_BARE_CHARS else self._fall_back()

    def _wrapped_arguments(self) -> bool:
        return self._read_arguments(self._rest)

    def _arguments(self) -> bool:
        return self._read_arguments(self._after)

    def _read_arguments(self, following: Callable[[], bool]) -> bool:
        end = self._scanner.end_in(self._pending)
        text = self._pending[:end]
        if text:
            self._events.append(CallArguments(text))
        self._pending = self._pending[len(text) :]
        return False if end is None else self._go(following)

    def _rest(self) -> bool:
        """What else is in the object of a call, up to its bracket; models forget that one now and then."""
        text = self._pending.lstrip(_BLANK)
        if not text:
            return False
        if text[0] == ",":
            self._scanner = ObjectScanner(depth=1)
            return self._go(self._others)
        if text[0] == "}":
            self._pending = text[1:]
        return self._go(self._after)

    def _others(self) -> bool:
        end = self._scanner.end_in(self._pending)
        self._pending = "" if end is None else self._pending[end:]
        return False if end is None else self._go(self._after)

    def _after(self) -> bool:
        """Behind a call: its end mark, the next call of a list, or content again."""
        framing, text = self._framing, self._pending.lstrip(_BLANK)
        if not text or (not self._is_last and text != framing.closing and framing.closing.startswith(text)):
            return False
        if framing.closing and text.startswith(framing.closing):
            self._pending = text[len(framing.closing) :]
        elif text[0] == framing.separator:
            self._opened, self._pending, self._may_be_list = text[0], text[1:], False
            return self._go(self._head)
        elif framing.in_list and text[0] == "]":
            self._pending = text[1:]
        return self._go(self._content)

    def _drop(self) -> bool:
        self._pending = ""
        return False

    def _go(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _wait(self) -> bool:
        """More text may make it a call."""
        return self._fall_back() if self._is_last else False

    def _fall_back(self) -> bool:
        """It is no call."""
        self._say(self._opened)
        self._rewind()
        return self._go(self._content)

    def _start(self, name: str | None, end: int, following: Callable[[], bool], arguments: str = "") -> bool:
        """A call whose text up to `end` is read, if there is a tool of this name."""
        if name is None or name not in self._names:
            return self._fall_back()
        self._events.append(CallStart(name))
        if arguments:
            self._events.append(CallArguments(arguments))
        self._num_calls += 1
        self._pending, self._space = self._pending[end:], ""
        self._rewind()
        return self._go(following)

    def _rewind(self) -> None:
        self._scanner, self._num_scanned = ObjectScanner(), 0

    def _say(self, text: str) -> None:
        """Content; white space waits, since it is dropped before a call."""
        text = self._space + text
        shown = text.rstrip(_BLANK)
        self._space = text[len(shown) :]
        if shown:
            self._events.append(Content(shown))


def _num_held(text: str, opening: str) -> int:
    """Length of the longest end of `text` that is a beginning of `opening`."""
    longest = min(len(text), len(opening) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(opening[:n])), 0)


def _decode_name(text: str) -> str | None:
    try:
        return msgspec.json.decode(text.encode(errors="replace"), type=str)
    except msgspec.MsgspecError:
        return None


def _decode_call(text: str) -> tuple[str | None, str]:
    """Name and arguments of a whole call; no name if it is none. Left out arguments are an empty object."""
    try:
        call = msgspec.json.decode(text.encode(errors="replace"), type=_Call)
    except (msgspec.MsgspecError, RecursionError):
        return None, ""
    arguments = (bytes(call.arguments) or bytes(call.parameters)).decode() or "{}"
    return (call.name, arguments) if arguments.startswith("{") else (None, "")
