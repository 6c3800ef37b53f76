"""The draft model of a drafter replica: checked when the replica starts, loaded at once or when a verifier comes."""

import logging
import secrets
import time

from cluster.clock import MonotonicClock
from cluster.config import DraftConfig, EngineConfig
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.draft_build import build_draft_model
from cluster.engine.drafters.draft_source import draft_folder, draft_memory_bytes, load_draft_model
from cluster.engine.drafters.run_ahead import RunAhead
from cluster.engine.drafters.run_ahead_state import RunAheadLimits
from cluster.engine.drafters.step_cost import TableCost
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.model_loader import eos_token_ids, load_config, load_tokenizer
from cluster.engine.startup import available_bytes, measure_pass_times, target_source
from cluster.transport.address import Address
from deployments.discovery import DrafterRecord

_logger = logging.getLogger(__name__)


class DrafterModel:
    """Knows what verifiers are told before any weight is loaded, and builds the drafter's mind.

    Args:
        engine: names the target, whose embeddings and vocabulary the draft model shares.
        draft: the draft model; `draft.model` is not None.
        on_gpu: run it on a GPU if there is one.

    Raises:
        ConfigError: it does not fit into memory.
        LoadError: a folder is refused or incomplete.
    """

    def __init__(self, engine: EngineConfig, draft: DraftConfig, *, on_gpu: bool) -> None:
        assert draft.model is not None
        self._draft, self._device = draft, None if on_gpu else "cpu"
        self._target = target_source(engine)
        self._tokenizer = load_tokenizer(self._target)
        self._config = load_config(self._target)
        self._model: DraftModel | None = None
        self._folder = draft_folder(draft.model)
        self.incarnation = secrets.randbits(62)
        self.model_id, self.target_id = self._folder.name, self._target.model_id
        self.tokenizer_hash = vocabulary_hash(self._tokenizer)
        memory = draft_memory_bytes(self._folder, kv_cache_tokens=draft.kv_cache_tokens)
        if memory is not None:
            memory.check(available_bytes())
            _logger.info("memory plan\n%s", memory.table(available_bytes()))

    def build(self) -> RunAhead:
        """Load the weights.

        Raises:
            ConfigError: `draft.max_model_len` is beyond the model's limit.
            LoadError: the model is refused, or made for another vocabulary.
        """
        started_s = time.monotonic()
        loaded = load_draft_model(self._folder, self._target, target_tokenizer=self._tokenizer)
        eos_ids = eos_token_ids(self._target, self._config, self._tokenizer)
        model = build_draft_model(loaded, self._draft, eos_token_ids=eos_ids, device=self._device)
        self._model = model
        _logger.info("loaded the draft model %s in %.1f s", self.model_id, time.monotonic() - started_s)
        return RunAhead(
            model,
            clock=MonotonicClock(),
            incarnation=self.incarnation,
            tokenizer_hash=self.tokenizer_hash,
            vocab_size=self._config.get_text_config().vocab_size,
            limits=RunAheadLimits(
                max_sequences=self._draft.max_sequences,
                max_sequences_per_peer=self._draft.max_sequences,
                num_speculative_tokens=self._draft.num_speculative_tokens,
                max_fan_out=self._draft.max_fan_out,
                idle_s=self._draft.idle_timeout_s,
                evictable_s=min(RunAheadLimits().evictable_s, self._draft.idle_timeout_s),
            ),
            cost=TableCost(measure_pass_times(model.runner)),
        )

    def record(self, *, replica: str, node_id: str, address: Address) -> DrafterRecord:
        """What verifiers are told of a drafter with this model.

        Args:
            replica: id of the drafter.
            node_id: its node.
            address: of its listener.
        """
        return DrafterRecord(
            replica=replica,
            node_id=node_id,
            incarnation=self.incarnation,
            address=address.to_json(),
            model_id=self.model_id,
            target=self.target_id,
            tokenizer_hash=self.tokenizer_hash,
            max_sequences=self._draft.max_sequences,
        )

    def release(self) -> None:
        """Stop the model's threads."""
        if self._model is not None:
            self._model.close_model()
            self._model = None
