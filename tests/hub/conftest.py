"""A tiny GPT-2 in a Hugging Face folder."""

import pytest

from tests.hub.cases import case_named


@pytest.fixture
def gpt2(tmp_path):
    """The folder."""
    case_named("gpt2").save(tmp_path)
    return tmp_path
