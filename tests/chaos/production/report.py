"""What happened, and what of it must not happen: as Markdown."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.production.application import KINDS, Sizes
from tests.chaos.production.balance import Balance, growth
from tests.chaos.production.clients import Outcome
from tests.chaos.production.killer import Kill
from tests.chaos.production.verdict import Result

NOTICED_S = 15.0
"""By then at the latest, on a busy machine, the proxy has noticed that a gateway is gone, and sends it nothing more."""

MAX_GROWN_BYTES, MAX_GROWN_FILES = 200 << 20, 40
"""Of a process that lived all the time: its heap settles, and connections to all replicas come and go."""

LOG_MONITOR, MAX_LOG_FILES = "ray: log_monitor", 200
"""Ray keeps the logs of dead workers open, up to its LOG_MONITOR_MAX_OPEN_FILES; then it closes them all."""

MAX_MORE_PROCESSES = 3
"""Ray keeps idle workers, and starts one or two ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a run showed.

    Attributes:
        title: of the document.
        command: that made it.
        about: facts by name.
        sizes: of the deployments.
        outcomes: of all requests.
        kills: in order.
        resumes: requests that gateways went on with elsewhere, by result and reason.
        not_whole: kinds that did not come back.
        before: taken before the first kill.
        after: taken when all was calm again.
        left_over: processes that were still there after the application was stopped.
    """

    title: str
    command: str
    about: Mapping[str, str]
    sizes: Sizes
    outcomes: Sequence[Outcome]
    kills: Sequence[Kill]
    resumes: Mapping[str, float]
    not_whole: Sequence[str]
    before: Balance
    after: Balance
    left_over: Sequence[str]

    def problems(self) -> list[str]:
        """What must not be; empty where the application held."""
        return [*self._problems_of_requests(), *self._problems_of_replicas(), *self._leaks()]

    def excused(self, outcome: Outcome) -> bool:
        """True for a connection that broke when a gateway was killed: the client sees that its server is gone."""
        return outcome.verdict.result is Result.CUT and any(
            kill.kind == "gateway" and 0 <= outcome.ended_s - kill.at_s <= NOTICED_S for kill in self.kills
        )

    def num_under_way(self, kill: Kill) -> int:
        """Requests that had begun and not ended when a replica was killed."""
        return sum(outcome.began_s <= kill.at_s <= outcome.ended_s for outcome in self.outcomes)

    def _problems_of_requests(self) -> Iterator[str]:
        for outcome in self.outcomes:
            verdict = outcome.verdict
            is_bad = verdict.result in (Result.WRONG, Result.ERROR, Result.CUT)
            if is_bad and not self.excused(outcome):
                form = "stream" if outcome.is_streamed else "whole"
                lost = ", ".join(kill.kind for kill in self._open_kills(outcome)) or "nothing"
                yield (
                    f"{outcome.call.name} ({form}): {verdict.result.value}, {verdict.cause}: {verdict.detail:.200}"
                    f" (dead meanwhile: {lost})"
                )

    def _problems_of_replicas(self) -> Iterator[str]:
        if self.not_whole:
            yield f"not whole at the end: {', '.join(self.not_whole)}"
        for kind in KINDS:
            count = self.after.num_processes.get(kind, 0)
            if count != self.sizes.of(kind):
                yield f"{count} processes of kind {kind} at the end instead of {self.sizes.of(kind)}"
        more = sum(self.after.num_processes.values()) - sum(self.before.num_processes.values())
        if more > MAX_MORE_PROCESSES:
            yield f"{more} processes more than before"
        for words in self.left_over:
            yield f"left over after the end: {words}"

    def _leaks(self) -> Iterator[str]:
        for name, value in self.after.not_zero.items():
            yield f"{name} stays at {value:g}"
        for kind, (num_bytes, files) in growth(self.before, self.after).items():
            if num_bytes > MAX_GROWN_BYTES:
                yield f"{kind} grew by {_mib(num_bytes)} MiB"
            if files > (MAX_LOG_FILES if kind == LOG_MONITOR else MAX_GROWN_FILES):
                yield f"{kind} has {files} open files more than before"

    def _open_kills(self, outcome: Outcome) -> list[Kill]:
        return [
            kill
            for kill in self.kills
            if kill.at_s <= outcome.ended_s and (kill.whole_s is None or kill.whole_s >= outcome.began_s)
        ]

    def markdown(self) -> str:
        """The document."""
        problems = self.problems()
        verdict = "Nothing that must not happen did." if not problems else f"{len(problems)} problems:"
        parts = [
            f"# {self.title}",
            f"`{self.command}`",
            *_table(("", ""), list(self.about.items())),
            "",
            verdict,
            *(f"- {problem}" for problem in problems[:50]),
            "",
            "## Requests",
            *self._requests(),
            "## Causes",
            *self._causes(),
            "## Kills",
            *self._kill_table(),
            "## What is held when nobody asks",
            *self._balance_table(),
        ]
        return "\n".join(parts) + "\n"

    def _requests(self) -> Iterator[str]:
        columns = list(Result)
        rows = []
        for name in dict.fromkeys(outcome.call.name for outcome in self.outcomes):
            for streamed in (False, True):
                those = [each for each in self.outcomes if each.call.name == name and each.is_streamed is streamed]
                counts = Counter(each.verdict.result for each in those)
                if those:
                    rows.append((name, "stream" if streamed else "whole", *(counts[each] or "" for each in columns)))
        totals = Counter(outcome.verdict.result for outcome in self.outcomes)
        rows.append(("all", f"{len(self.outcomes)}", *(totals[each] for each in columns)))
        yield from _table(("call", "form", *(each.value for each in columns)), rows)
        yield ""

    def _causes(self) -> Iterator[str]:
        groups: dict[tuple[str, str, str], list[Outcome]] = {}
        for outcome in self.outcomes:
            if outcome.verdict.cause:
                because = "a gateway was killed" if self.excused(outcome) else ""
                key = (outcome.verdict.result.value, outcome.verdict.cause, because)
                groups.setdefault(key, []).append(outcome)
        rows = [
            (*key, len(those), those[0].verdict.detail.replace("|", "/").replace("\n", " ")[:80])
            for key, those in sorted(groups.items())
        ]
        yield from _table(("result", "cause", "excused, since", "requests", "the first one said"), rows)
        share = sum(len(those) for (result, *_), those in groups.items() if result in ("error", "cut", "wrong"))
        yield f"\nError rate: {share / max(1, len(self.outcomes)):.2%} of {len(self.outcomes)} requests.\n"

    def _kill_table(self) -> Iterator[str]:
        rows = []
        for kind in KINDS:
            took = [kill.took_s for kill in self.kills if kill.kind == kind and kill.took_s is not None]
            under_way = [self.num_under_way(kill) for kill in self.kills if kill.kind == kind]
            times = (f"{statistics.median(took):.1f}", f"{max(took):.1f}") if took else ("", "")
            rows.append((kind, self.sizes.of(kind), len(under_way), sum(under_way), *times))
        head = ("kind", "replicas", "kills", "requests under way then", "whole again after, median s", "at most s")
        yield from _table(head, rows)
        resumes = ", ".join(f"{what} {count:.0f}" for what, count in sorted(self.resumes.items()))
        yield f"\nRequests that gateways went on with on another verifier: {resumes or 'none'}.\n"

    def _balance_table(self) -> Iterator[str]:
        before, after, grown = self.before, self.after, growth(self.before, self.after)
        rows = []
        old_files, new_files = before.by_kind(before.num_files), after.by_kind(after.num_files)
        old_bytes, new_bytes = before.by_kind(before.rss_bytes), after.by_kind(after.rss_bytes)
        for kind in sorted({*before.num_processes, *after.num_processes}):
            lived = grown.get(kind)
            rows.append(
                (
                    kind,
                    f"{before.num_processes.get(kind, 0)} → {after.num_processes.get(kind, 0)}",
                    f"{_mib(old_bytes.get(kind, 0))} → {_mib(new_bytes.get(kind, 0))}",
                    "" if lived is None else f"{lived[0] / (1 << 20):+.0f}",
                    f"{old_files.get(kind, 0)} → {new_files.get(kind, 0)}",
                )
            )
        yield from _table(("processes", "number", "largest, MiB", "growth of one that lived, MiB", "open files"), rows)
        total = f"{_mib(before.total_bytes)} → {_mib(after.total_bytes)} MiB"
        yield f"\nResident memory of all processes: {total}. Left after the end: {len(self.left_over)} processes."
        zero = ", ".join(f"{name} = {value:g}" for name, value in after.not_zero.items())
        yield f"Gauges that should be zero (KV blocks, queues, followed sequences): {zero or 'all are'}."


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    line = "| " + " | ".join("---" for _ in head) + " |"
    return [_row(head), line, *map(_row, rows)]


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _mib(num_bytes: int) -> int:
    return round(num_bytes / (1 << 20))
