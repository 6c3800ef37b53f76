"""The baseline that everybody has: transformers' `generate`, in either dtype, with and without prompt lookup."""

import time
from collections.abc import Sequence

import torch
from transformers import GenerationConfig, PreTrainedModel

from cluster.config import BUNDLED
from cluster.engine.model_loader import load_reference_model
from cluster.engine.model_source import resolve_model
from tests.benchmarks.measure import THREADS, torch_threads

DTYPES = (torch.bfloat16, torch.float32)


class TransformersBaseline:
    """The bundled model in transformers' own code.

    Args:
        dtype: of weights and activations.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        source = resolve_model(BUNDLED, revision=None, cache_dir=None)
        self._model: PreTrainedModel = load_reference_model(source, dtype)
        # Settings that are left open are taken from here, and EOS would end the text early.
        self._model.generation_config = GenerationConfig(pad_token_id=0)
        self.name = str(dtype).removeprefix("torch.")

    def tokens_per_s(self, prompt: Sequence[int], max_tokens: int, *, num_lookup_tokens: int = 0) -> float:
        """Greedy tokens by the whole time of one call, prefill included.

        Args:
            prompt: token ids.
            max_tokens: tokens to generate; no less are.
            num_lookup_tokens: draft tokens of prompt lookup; 0 decodes plainly.

        Raises:
            RuntimeError: another number of tokens came out.
        """
        settings = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_tokens,
            pad_token_id=0,
            prompt_lookup_num_tokens=num_lookup_tokens or None,
        )
        ids = torch.tensor([list(prompt)])
        with torch_threads(THREADS), torch.inference_mode():
            started_s = time.perf_counter()
            output = self._model.generate(  # type: ignore[operator]  # the mixin is not seen by mypy
                input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings
            )
            elapsed_s = time.perf_counter() - started_s
        num_tokens = output.shape[1] - len(prompt)
        if num_tokens != max_tokens:
            raise RuntimeError(f"generate gave {num_tokens} tokens instead of {max_tokens}")
        return max_tokens / elapsed_s
