"""Where a JSON object ends in text that arrives in pieces of any size."""

import re

_OUTSIDE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class ObjectScanner:
    """Counts brackets outside strings. Text that is no JSON ends where its brackets balance, or not at all.

    Args:
        depth: brackets that are open before the text begins.
    """

    def __init__(self, depth: int = 0) -> None:
        self._depth, self._in_string, self._is_escaped = depth, False, False

    def end_in(self, text: str, start: int = 0) -> int | None:
        """Read on.

        Args:
            text: holds the next piece, which begins at `start` and goes to the end.
            start: where the piece begins.

        Returns:
            The position behind the bracket that closes the last open one; None if it is still to come.
        """
        at = start
        while at < len(text):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            match = (_IN_STRING if self._in_string else _OUTSIDE).search(text, at)
            if match is None:
                return None
            at = match.end()
            self._take(match.group())
            if self._depth <= 0 and not self._in_string:
                return at
        return None

    def _take(self, char: str) -> None:
        if char == '"':
            self._in_string = not self._in_string
        elif self._in_string:
            self._is_escaped = True
        else:
            self._depth += 1 if char in "{[" else -1
