from dataclasses import fields

import pytest

from cluster.errors import ConfigError
from cluster.grammar.limits import GrammarLimits


@pytest.mark.parametrize("name", [field.name for field in fields(GrammarLimits)])
def test_each_limit_out_of_range_is_refused_by_its_name(name: str) -> None:
    for value in (-1, 1 << 40, float("nan")):
        with pytest.raises(ConfigError, match=rf"grammar\.{name} = {value}"):
            GrammarLimits(**{name: value})  # type: ignore[arg-type]
