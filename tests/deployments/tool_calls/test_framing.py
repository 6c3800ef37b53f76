import pytest

from deployments.tool_calls.framing import FRAMINGS, traits_of
from tests.deployments.tool_samples import HERMES, LLAMA_31, LLAMA_32, MISTRAL, PLAIN, QWEN_CODER


@pytest.mark.parametrize(
    ("template", "knows_tools", "name"),
    [
        (HERMES, True, "hermes"),
        (LLAMA_31, True, "llama3_json"),
        (LLAMA_32, True, "llama3_json"),
        (MISTRAL, True, "mistral"),
        (QWEN_CODER, True, None),
        ("{% for tool in tools %}{% endfor %}", True, None),
        (PLAIN, False, "hermes"),
        ("no toolset here", False, "hermes"),
        (None, False, "hermes"),
        ({"default": PLAIN, "tool_use": MISTRAL}, True, "mistral"),
        ({"default": PLAIN}, False, "hermes"),
    ],
)
def test_a_template_says_whether_it_knows_tools_and_how_it_teaches_calls(
    template: object, knows_tools: bool, name: str | None
) -> None:
    traits = traits_of(template)
    assert traits.knows_tools is knows_tools
    assert traits.framing == (FRAMINGS[name] if name else None)
