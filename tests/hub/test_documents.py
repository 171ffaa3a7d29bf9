"""The example family in docs/extending.md works, and docs/hugging-face.md lists every family."""

import re
from pathlib import Path

import transformers

import regard
from regard.hub.details import read_details
from regard.hub.families import FAMILIES
from regard.hub.folder import find_conversion, huggingface_obstacle, load_huggingface, save_huggingface
from tests.hub.cases import LLAMA, Case, ask_ours, ask_theirs, batch, compare

DOCS = Path(regard.__file__).parent.parent / "docs"
TEXT = (DOCS / "hugging-face.md").read_text(encoding="utf-8")


def test_the_family_of_the_document_works(tmp_path, monkeypatch) -> None:
    blocks = re.findall(r"```python\n(# my_family.py\n.*?)```", (DOCS / "extending.md").read_text("utf-8"), re.DOTALL)
    monkeypatch.setattr(FAMILIES, "_items", dict(FAMILIES))  # forgotten after the test
    exec(blocks[0], {})
    assert "qwen2" in FAMILIES
    case, data = Case("qwen2", "Qwen2ForCausalLM", LLAMA), batch()
    case.save(tmp_path)
    model = load_huggingface(tmp_path).eval()
    theirs = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path).eval()
    compare(ask_theirs(theirs, case, data), ask_ours(model, case, data), data, 1e-5)
    assert huggingface_obstacle(model.config) is None
    assert find_conversion(model.config).family.model_type == "qwen2"
    save_huggingface(model, tmp_path / "out", read_details(tmp_path))
    assert load_huggingface(tmp_path / "out").config == model.config


def test_every_family_is_in_the_document() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) - {"model_type"} == set(FAMILIES)
    for family in FAMILIES.values():
        (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{family.model_type}` |")]
        for architecture in family.architectures:
            short = "For" + architecture.partition("For")[2] if "For" in architecture else architecture
            assert short in row or "the same" in row or short.removeprefix("GPT2") in row, architecture
