"""Weights that do not fit the config, and weights of old files, which do."""

import torch
import transformers
from safetensors.torch import load_file, save_file

from regard.hub.folder import load_huggingface, save_huggingface
from tests.hub.cases import BERT, T5_1_1, VOCABULARY, Case, ask_ours, ask_theirs, batch, compare
from tests.hub.spoil import WEIGHTS, change_config, change_weights, refused


def test_an_unknown_weight_is_named(gpt2) -> None:
    change_weights(gpt2, lambda w: w.update({"transformer.h.0.ln_3.bias": torch.zeros(16)}))
    refused(gpt2, r"model.safetensors: GPT2LMHeadModel has no weight 'transformer.h.0.ln_3.bias'.*did you mean '")


def test_a_missing_weight_is_named(gpt2) -> None:
    change_weights(gpt2, lambda w: w.pop("transformer.h.1.attn.c_attn.bias"))
    refused(gpt2, "model.safetensors: the weight 'transformer.h.1.attn.c_attn.bias' is missing")


def test_a_wrong_shape_is_named(gpt2) -> None:
    change_weights(gpt2, lambda w: w.update({"transformer.h.0.mlp.c_fc.weight": torch.zeros(64, 16)}))
    refused(gpt2, r"c_fc.weight has shape \(64, 16\), but config.json requires \(16, 64\)")


def test_weights_must_be_floating_point(gpt2) -> None:
    change_weights(gpt2, lambda w: w.update({"transformer.ln_f.bias": torch.zeros(16, dtype=torch.int8)}))
    refused(gpt2, "transformer.ln_f.bias is not floating point")


def test_a_tied_weight_may_occur_twice_but_not_differ(gpt2) -> None:
    table = load_file(gpt2 / WEIGHTS)["transformer.wte.weight"]
    change_weights(gpt2, lambda w: w.update({"lm_head.weight": table.clone()}))
    assert torch.equal(load_huggingface(gpt2).embed.tokens.table.weight, table)
    change_weights(gpt2, lambda w: w.update({"lm_head.weight": table + 1}))
    refused(gpt2, "lm_head.weight differs from transformer.wte.weight, but config.json ties them")


def test_constants_of_old_files_are_ignored(gpt2) -> None:
    before = load_huggingface(gpt2).state_dict()
    old = {
        "transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32),
        "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
    }
    change_weights(gpt2, lambda w: w.update(old))
    assert all(torch.equal(tensor, before[name]) for name, tensor in load_huggingface(gpt2).state_dict().items())


def test_the_prefix_may_be_missing(gpt2) -> None:
    before = load_huggingface(gpt2).state_dict()
    weights = {name.removeprefix("transformer."): tensor for name, tensor in load_file(gpt2 / WEIGHTS).items()}
    save_file(weights | {"h.0.attn.bias": torch.ones(1, 1, 32, 32)}, gpt2 / WEIGHTS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in load_huggingface(gpt2).state_dict().items())


def test_old_names_of_bert(tmp_path) -> None:
    """Like bert-base-uncased: gamma and beta, the tied weights twice, the pooler, and a head that is not used."""
    case = Case("bert-old", "BertForPreTraining", BERT)
    case.save(tmp_path)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    change_config(tmp_path, architectures=["BertForMaskedLM"], gradient_checkpointing=False)

    def age(weights) -> None:
        for name in [name for name in weights if ".LayerNorm." in name]:
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            weights[old] = weights.pop(name)
        weights["bert.embeddings.position_ids"] = torch.arange(32)[None]
        weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()

    change_weights(tmp_path, age)
    data = batch()
    compare(ask_theirs(theirs, case, data), ask_ours(load_huggingface(tmp_path).eval(), case, data), data, 1e-5)


def test_another_precision_can_be_requested(gpt2) -> None:
    exact = load_huggingface(gpt2)
    rounded = load_huggingface(gpt2, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in rounded.parameters()} == {torch.bfloat16}
    for name, tensor in rounded.state_dict().items():
        assert torch.equal(tensor, exact.state_dict()[name].to(torch.bfloat16))


def test_nothing_is_copied(gpt2) -> None:
    """Queries, keys and values are three views of one tensor in the file."""
    heads = load_huggingface(gpt2).stack.layers[0].mixer.heads
    places = {part.weight.untyped_storage().data_ptr() for part in (heads.to_query, heads.to_key, heads.to_value)}
    assert len(places) == 1


def test_t5_whose_file_has_a_matrix_for_the_logits(tmp_path) -> None:
    """Like Flan-T5: not tied, and not scaled."""
    case = Case("flan", "T5ForConditionalGeneration", T5_1_1)
    case.save(tmp_path)
    change_weights(tmp_path, lambda w: w.update({"lm_head.weight": torch.randn(VOCABULARY, 16)}))
    change_config(tmp_path, tie_word_embeddings=False)
    model, data = load_huggingface(tmp_path).eval(), batch()
    assert not model.config.head.tied
    for folder in (tmp_path, tmp_path / "out"):
        save_huggingface(model, tmp_path / "out")
        theirs = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
        compare(ask_theirs(theirs, case, data), ask_ours(model, case, data), data, 1e-5)
