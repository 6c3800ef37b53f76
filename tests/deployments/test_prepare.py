import hashlib
import struct

import pytest

from cluster.errors import InvalidRequestError
from cluster.routing.types import Domain, Reason, Route
from cluster.types import Role, SpeculationMode
from deployments.codec import TextCodec
from deployments.limits import Limits
from deployments.prepare import Caller, Job, Preparer, derive_seed
from deployments.routing import Routed, Router
from deployments.schema import parse_body
from deployments.schema_openai import ChatCompletionRequest, CompletionRequest
from deployments.shaping import Shaped
from deployments.wire import EngineCard
from tests.deployments.fake_engine import ByteTokenizer

pytestmark = pytest.mark.anyio

CARD = EngineCard(
    model_id="m", max_model_len=100, vocab_size=257, numerics="invariant", dtype="float32", num_speculative_tokens=7
)
CALLER = Caller(request_id="id", tenant="t")


def _preparer() -> Preparer:
    return Preparer(TextCodec(ByteTokenizer(), 257), CARD, Limits(), "m")


async def _completion(**fields: object) -> Job:
    body = parse_body(CompletionRequest, {"prompt": "abc"} | fields, strict=True)
    preparer, codec = _preparer(), TextCodec(ByteTokenizer(), 257)
    prompts = await preparer.prompts(body)
    return preparer.completion(body, prompts, Router("learned", 100).completion(body, prompts, codec.decode, 0), CALLER)


def _chat(**fields: object) -> Job:
    body = parse_body(ChatCompletionRequest, {"messages": [{"role": "user", "content": "a"}]} | fields, strict=True)
    return _preparer().chat(body, Shaped(prompt_ids=[1, 2, 3]), Router("learned", 100).chat(body, 3, 0), CALLER)


def test_seed_derivation_is_the_documented_hash() -> None:
    assert derive_seed(5, 0) == 5
    expected = hashlib.blake2b(struct.pack("<QQ", 5, 3), digest_size=8).digest()
    assert derive_seed(5, 3) == int.from_bytes(expected, "little")
    assert derive_seed(-1, 0) == 2**64 - 1
    assert len({derive_seed(seed, index) for seed in range(50) for index in range(16)}) == 800


async def test_defaults_are_openais_and_vllms() -> None:
    (request,) = (await _completion()).requests
    sampling = request.sampling
    assert sampling.max_tokens == 16
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, 0, 0.0)
    assert (sampling.logprobs, sampling.prompt_logprobs) == (None, None)
    assert _chat().requests[0].sampling.max_tokens == 97


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert _chat(max_tokens=5, max_completion_tokens=7).requests[0].sampling.max_tokens == 7


async def test_every_sampling_field_reaches_the_engine() -> None:
    fields = {
        "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": 0.3,
        "frequency_penalty": -0.4, "logit_bias": {"9": 2.0, "8": -1.0}, "allowed_token_ids": [8, 9],
        "bad_words": ["no"],
        "min_tokens": 2, "ignore_eos": True, "stop_token_ids": [7], "stop": "END", "include_stop_str_in_output": True,
        "skip_special_tokens": False, "logprobs": 3, "priority": -2, "max_tokens": 12, "seed": 9,
    }  # fmt: skip
    (request,) = (await _completion(**fields)).requests
    sampling = request.sampling
    for name in (
        "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "min_tokens", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "logprobs",
        "max_tokens", "seed",
    ):  # fmt: skip
        assert getattr(sampling, name) == fields[name], name
    assert sampling.logit_bias == ((8, -1.0), (9, 2.0))
    assert sampling.allowed_token_ids == (8, 9)
    assert sampling.bad_words == (tuple(b"no"), tuple(b" no"))
    assert (sampling.stop, sampling.stop_token_ids) == (("END",), (7,))
    assert request.priority == -2


async def test_top_k_minus_one_means_all() -> None:
    assert (await _completion(top_k=-1)).requests[0].sampling.top_k == 0


async def test_engine_ids_are_unique_even_when_the_client_repeats_its_own() -> None:
    jobs = [await _completion(n=2) for _ in range(3)]
    assert len({request.request_id for job in jobs for request in job.requests}) == 6
    assert {job.response_id for job in jobs} == {"cmpl-id"}


async def test_speculation_wishes_reach_the_engine_and_a_route_can_forbid_drafting_but_not_ask_for_it() -> None:
    job = await _completion(speculation={"num_speculative_tokens": 3, "drafter": "ngram"})
    assert job.requests[0].speculation.num_speculative_tokens == 3
    assert job.requests[0].speculation.drafter == "ngram"
    assert job.num_speculative_tokens == 3
    assert (await _completion(speculation={"num_speculative_tokens": 0})).num_speculative_tokens == 0
    body = parse_body(CompletionRequest, {"prompt": "a"}, strict=True)
    for pool in Role:
        for drafts, mode in ((True, SpeculationMode.AUTO), (False, SpeculationMode.OFF)):
            route = Route(pool=pool, reason=Reason.GOODPUT, drafts=drafts)
            job = _preparer().completion(body, [[97]], Routed(route=route, domain=Domain.GENERAL_CHAT), CALLER)
            assert job.requests[0].speculation.mode is mode


async def test_the_engine_is_told_the_domain() -> None:
    assert (await _completion(domain="rag_summary")).requests[0].domain == "rag_summary"
    assert [request.domain for request in _chat(n=2).requests] == ["general_chat"] * 2


async def test_the_salt_has_tenant_and_client_part() -> None:
    assert (await _completion(cache_salt="s")).requests[0].cache_salt == "t|s"


async def test_logit_bias_keys_must_be_plain_ids() -> None:
    for key in ("-1", "1.5", "", "१", "99999999999"):
        with pytest.raises(InvalidRequestError):
            await _completion(logit_bias={key: 1.0})
