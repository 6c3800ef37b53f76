"""The engine in a thread of its own: commands go in by a queue, a round comes out by one call into the event loop."""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.errors import ConfigError, EngineDeadError, RequestError
from cluster.grammar.matcher import GrammarMatcher
from cluster.types import Request, RequestOutput, Role, StepStats
from deployments.mailbox import Mailbox

logger = logging.getLogger(__name__)


class EngineLike(Protocol):
    """What the loop needs of an engine."""

    @property
    def has_work(self) -> bool:
        """True while a step would do something."""
        ...

    @property
    def last_step(self) -> StepStats:
        """What the last step did."""
        ...

    def add(self, request: Request, grammar: GrammarMatcher | None = None) -> None:
        """Queue a choice, with the matcher of its grammar where it has one."""
        ...

    def abort(self, request_id: str) -> None:
        """End a choice; unknown ids are ignored."""
        ...

    def step(self) -> list[RequestOutput]:
        """Run one round."""
        ...

    def set_role(self, role: Role, *, max_num_seqs: int) -> None:
        """Work in another role from the next round on."""
        ...


@dataclass(frozen=True, slots=True)
class _Add:
    request: Request
    grammar: GrammarMatcher | None


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Ping:
    reply: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class _SetRole:
    role: Role
    max_num_seqs: int
    reply: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command = _Add | _Abort | _Ping | _SetRole | _Stop


class EngineLoop:
    """Runs an engine and hands its outputs to mailboxes. All methods belong to the event loop's thread.

    Args:
        build_engine: makes the engine; runs in the engine's thread.
        on_step: told about every round, on the event loop's thread, before its outputs are delivered.
        on_death: called on the event loop's thread once the engine has stopped by an error.
    """

    def __init__(
        self,
        build_engine: Callable[[], EngineLike],
        on_step: Callable[[StepStats, Sequence[RequestOutput]], None],
        on_death: Callable[[], None] | None = None,
    ) -> None:
        self._build_engine, self._on_step, self._on_death = build_engine, on_step, on_death
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._taken: deque[_Command] = deque()
        self._mailboxes: dict[str, Mailbox] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._error: BaseException | None = None

    async def start(self) -> EngineLike:
        """Start the thread; returns the engine (for its constant attributes) once it is built.

        Raises:
            Exception: whatever building the engine raised.
        """
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[EngineLike] = self._loop.create_future()
        self._thread.start()
        return await self._ready

    @property
    def num_streams(self) -> int:
        """Choices whose outputs are waited for."""
        return len(self._mailboxes)

    def submit(
        self,
        requests: Sequence[Request],
        interval_s: Callable[[], float],
        grammars: Mapping[str, GrammarMatcher] | None = None,
    ) -> Mailbox:
        """Hand the choices of a call to the engine, and the matchers of those with a grammar, by request id.

        Raises:
            EngineDeadError: the engine's thread stopped.
        """
        self.check_alive()
        mailbox, grammars = Mailbox(requests, interval_s), grammars or {}
        for request in requests:
            self._mailboxes[request.request_id] = mailbox
            self._commands.put(_Add(request, grammars.get(request.request_id)))
        return mailbox

    def close(self, requests: Sequence[Request], mailbox: Mailbox) -> tuple[str, ...]:
        """The reader is gone: abort the choices that still run, before the next round, and return their ids."""
        unfinished = mailbox.open_ids
        mailbox.close()
        for request in requests:
            self._mailboxes.pop(request.request_id, None)
        for request_id in unfinished:
            self._commands.put(_Abort(request_id))
        return unfinished

    def check_alive(self) -> None:
        """Raise if the engine cannot work any more.

        Raises:
            EngineDeadError: its thread stopped.
        """
        if self._error is not None or not self._thread.is_alive():
            raise EngineDeadError("the engine loop stopped") from self._error

    async def ping(self, timeout_s: float) -> None:
        """Wait until the loop has come around, its current round included.

        Raises:
            EngineDeadError: the engine's thread stopped.
            TimeoutError: it hangs.
        """
        self.check_alive()
        reply: asyncio.Future[None] = self._loop.create_future()
        self._commands.put(_Ping(reply))
        await asyncio.wait_for(reply, timeout_s)

    def set_role(self, role: Role, *, max_num_seqs: int) -> "asyncio.Future[None]":
        """Let the engine work in another role, after what was submitted before and before its next round.

        Returns:
            Done once the role is in force; fails with ConfigError where the engine refuses, with EngineDeadError
            where its thread stops.

        Raises:
            EngineDeadError: the engine's thread stopped.
        """
        self.check_alive()
        reply: asyncio.Future[None] = self._loop.create_future()
        self._commands.put(_SetRole(role, max_num_seqs, reply))
        return reply

    async def stop(self) -> None:
        """End the thread after its current round; every open call fails."""
        self._commands.put(_Stop())
        await asyncio.to_thread(self._thread.join)
        self._fail_all(EngineDeadError("the engine was stopped"))

    def _run(self) -> None:
        try:
            engine = self._build_engine()
        except BaseException as error:  # noqa: BLE001 -- whatever it is, start() must raise it
            self._post(self._not_ready, error)
            return
        self._post(self._ready.set_result, engine)
        try:
            self._work(engine)
        except BaseException as error:  # noqa: BLE001 -- a dead engine must be known, whatever killed it
            self._post(self._die, error)

    def _work(self, engine: EngineLike) -> None:
        while True:
            self._taken += self._drain(wait=not engine.has_work)
            while self._taken:
                command = self._taken.popleft()
                if isinstance(command, _Stop):
                    return
                self._apply(engine, command)
            # An aborted choice is work until its last output is told, so gauges are never left behind.
            if engine.has_work:
                outputs = engine.step()
                self._post(self._deliver, outputs, engine.last_step)

    def _drain(self, *, wait: bool) -> list[_Command]:
        commands: list[_Command] = [self._commands.get()] if wait else []
        while True:
            try:
                commands.append(self._commands.get_nowait())
            except queue.Empty:
                return commands

    def _apply(self, engine: EngineLike, command: _Command) -> None:
        if isinstance(command, _Add):
            try:
                engine.add(command.request, command.grammar)
            except RequestError as error:
                self._post(self._reject, command.request.request_id, error)
        elif isinstance(command, _Abort):
            engine.abort(command.request_id)
        elif isinstance(command, _Ping):
            self._post(_answer, command.reply)
        elif isinstance(command, _SetRole):
            self._set_role(engine, command)

    def _set_role(self, engine: EngineLike, command: _SetRole) -> None:
        try:
            engine.set_role(command.role, max_num_seqs=command.max_num_seqs)
        except ConfigError as error:
            self._post(_refuse, command.reply, error)
        except BaseException:
            self._taken.appendleft(command)  # It fails with all others that the thread leaves behind.
            raise
        else:
            self._post(_answer, command.reply)

    def _post(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The event loop closed under us: nobody is left to tell.
            logger.debug("event loop closed; an engine message is dropped")

    def _deliver(self, outputs: Sequence[RequestOutput], stats: StepStats) -> None:
        self._on_step(stats, outputs)
        for output in outputs:
            mailbox = self._mailboxes.get(output.request_id)
            if mailbox is not None:
                mailbox.put(output)
                if output.finish_reason is not None:
                    del self._mailboxes[output.request_id]

    def _reject(self, request_id: str, error: RequestError) -> None:
        mailbox = self._mailboxes.pop(request_id, None)
        if mailbox is None:
            return
        for other in mailbox.open_ids:
            if other != request_id:
                self._commands.put(_Abort(other))
        mailbox.fail(error)

    def _not_ready(self, error: BaseException) -> None:
        self._error = error
        self._ready.set_exception(error)

    def _die(self, error: BaseException) -> None:
        logger.error("the engine loop stopped", exc_info=error)
        self._error = error
        self._fail_all(EngineDeadError("the engine loop stopped"))
        if self._on_death is not None:
            self._on_death()

    def _fail_all(self, error: EngineDeadError) -> None:
        for mailbox in set(self._mailboxes.values()):
            mailbox.fail(error)
        self._mailboxes.clear()
        # What the thread took and did not come to, then what it never saw.
        for command in (*self._taken, *self._drain(wait=False)):
            if isinstance(command, _Ping | _SetRole):
                _refuse(command.reply, error)
        self._taken.clear()


def _answer(reply: "asyncio.Future[None]") -> None:
    if not reply.done():
        reply.set_result(None)


def _refuse(reply: "asyncio.Future[None]", error: BaseException) -> None:
    if not reply.done():
        reply.set_exception(error)
