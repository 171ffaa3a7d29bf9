"""Tiny models of `transformers`, one for each variant of each family, and functions that run theirs and ours."""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn

VOCABULARY = 29
PAD = 1

SMALL = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4}
LLAMA = {**SMALL, "intermediate_size": 24, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": PAD}
GPT2 = {"vocab_size": VOCABULARY, "n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 32, "pad_token_id": PAD}
GPT2 |= {"bos_token_id": 2, "eos_token_id": 3}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "original_max_position_embeddings": 8,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}

BERT = {**SMALL, "intermediate_size": 24, "max_position_embeddings": 32, "pad_token_id": PAD}
DISTILBERT = {"vocab_size": VOCABULARY, "n_layers": 2, "dim": 16, "n_heads": 4, "hidden_dim": 24}
DISTILBERT |= {"max_position_embeddings": 32, "pad_token_id": PAD}
VIT = {key: value for key, value in SMALL.items() if key != "vocab_size"}
VIT |= {"intermediate_size": 24, "image_size": [8, 12], "patch_size": 4}

MARIAN = {"vocab_size": VOCABULARY, "d_model": 16, "max_position_embeddings": 32, "pad_token_id": PAD}
MARIAN |= {f"{side}_layers": 2 for side in ("encoder", "decoder")}
MARIAN |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
MARIAN |= {f"{side}_ffn_dim": 24 for side in ("encoder", "decoder")}
MARIAN |= {"decoder_start_token_id": 2, "eos_token_id": 3, "forced_eos_token_id": None}
T5 = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 4}
T5 |= {"num_decoder_layers": 1, "pad_token_id": PAD, "relative_attention_num_buckets": 8}
T5 |= {"relative_attention_max_distance": 6, "decoder_start_token_id": 2}
T5_1_1 = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
DEEPSEEK = {
    **LLAMA,
    "num_key_value_heads": 4,
    "q_lora_rank": 6,
    "kv_lora_rank": 5,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 6,
    "v_head_dim": 3,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
RWKV = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "hidden_size": 16, "attention_hidden_size": 16}
RWKV |= {"intermediate_size": 24, "context_length": 32, "rescale_every": 0, "pad_token_id": PAD}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8,
    "beta_fast": 2.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
}


@dataclass(frozen=True)
class Case:
    """A Hugging Face architecture and its config."""

    name: str
    architecture: str
    values: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    most: str = "5GB"  # in one file
    written_as: str = ""  # the model_type that is written, if it is another one

    def build(self) -> nn.Module:
        """Build the model with weights large enough that everything matters, also norms and biases."""
        cls = getattr(transformers, self.architecture)
        model = cls(cls.config_class(**self.values)).eval()
        generator = torch.Generator().manual_seed(1)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        names = ("final_logits_bias", "e_score_correction_bias")
        trained += [buffer for name, buffer in model.named_buffers() if name.endswith(names)]
        with torch.no_grad():
            for tensor in trained:
                tensor += 0.2 * torch.randn(tensor.shape, generator=generator)
        return model.to(self.dtype)

    def save(self, folder) -> None:
        """Write it with `save_pretrained`."""
        self.build().save_pretrained(folder, max_shard_size=self.most)

    @property
    def kind(self) -> str:
        """What the model is for."""
        for kind, ends in {
            "classes": ("ForSequenceClassification",),
            "image": ("ForImageClassification", "ViTModel"),
            "masked": ("ForMaskedLM", "ForPreTraining"),
            "pair": ("ForConditionalGeneration", "MarianMTModel"),
            "language": ("ForCausalLM", "LMHeadModel"),
        }.items():
            if self.architecture.endswith(ends):
                return kind
        return "vector"


CASES = [
    Case("gpt2", "GPT2LMHeadModel", GPT2),
    Case("gpt2-untied", "GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False, "n_inner": 20}),
    Case("gpt2-relu", "GPT2LMHeadModel", {**GPT2, "activation_function": "relu", "layer_norm_epsilon": 1e-3}),
    Case("gpt2-classes", "GPT2ForSequenceClassification", {**GPT2, "num_labels": 5}),
    Case("gpt2-sharded", "GPT2LMHeadModel", GPT2, most="8KB"),
    Case("gpt2-bf16", "GPT2LMHeadModel", GPT2, dtype=torch.bfloat16),
    Case("gpt2-fp16", "GPT2LMHeadModel", GPT2, dtype=torch.float16),
    Case("llama", "LlamaForCausalLM", LLAMA),
    Case("llama-tied", "LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 4}),
    Case("llama-3", "LlamaForCausalLM", {**LLAMA, "rope_parameters": LLAMA3, "rms_norm_eps": 1e-5}),
    Case("llama-biases", "LlamaForCausalLM", {**LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 6}),
    Case("llama-classes", "LlamaForSequenceClassification", {**LLAMA, "num_labels": 3}),
    Case("mistral", "MistralForCausalLM", {**LLAMA, "sliding_window": None}, written_as="llama"),
    Case("mistral-window", "MistralForCausalLM", {**LLAMA, "sliding_window": 3}),
    Case("qwen3", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 6}),
    Case(
        "qwen3-windows",
        "Qwen3ForCausalLM",
        {**LLAMA, "head_dim": 6, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    ),
    Case("bert", "BertForMaskedLM", BERT),
    Case("bert-relu", "BertForMaskedLM", {**BERT, "hidden_act": "relu", "type_vocab_size": 3}),
    Case("bert-classes", "BertForSequenceClassification", {**BERT, "num_labels": 3}),
    Case("bert-vector", "BertModel", BERT),
    Case("bert-bf16", "BertForMaskedLM", BERT, dtype=torch.bfloat16),
    Case("roberta", "RobertaForMaskedLM", BERT),
    Case("roberta-classes", "RobertaForSequenceClassification", {**BERT, "layer_norm_eps": 1e-5}),
    Case("roberta-vector", "RobertaModel", BERT),
    Case("distilbert", "DistilBertForMaskedLM", DISTILBERT),
    Case("distilbert-untied", "DistilBertForMaskedLM", {**DISTILBERT, "tie_word_embeddings": False}),
    Case("distilbert-classes", "DistilBertForSequenceClassification", {**DISTILBERT, "num_labels": 3}),
    Case("distilbert-vector", "DistilBertModel", DISTILBERT),
    Case("vit", "ViTForImageClassification", {**VIT, "num_labels": 5}),
    Case("vit-vector", "ViTModel", {**VIT, "layer_norm_eps": 1e-3, "hidden_act": "gelu_pytorch_tanh"}),
    Case("marian", "MarianMTModel", {**MARIAN, "scale_embedding": True, "activation_function": "swish"}),
    Case("marian-unshared", "MarianMTModel", {**MARIAN, "share_encoder_decoder_embeddings": False}),
    Case("marian-bf16", "MarianMTModel", MARIAN, dtype=torch.bfloat16),
    Case("pegasus", "PegasusForConditionalGeneration", {**MARIAN, "scale_embedding": True}),
    Case("bart", "BartForConditionalGeneration", MARIAN),
    Case("bart-relu", "BartForConditionalGeneration", {**MARIAN, "activation_function": "relu", "decoder_layers": 1}),
    Case("t5", "T5ForConditionalGeneration", T5),
    Case("t5-1.1", "T5ForConditionalGeneration", T5_1_1),
    Case("deepseek", "DeepseekV3ForCausalLM", DEEPSEEK),
    Case(
        "deepseek-no-query-rank", "DeepseekV3ForCausalLM", {**DEEPSEEK, "q_lora_rank": None, "first_k_dense_replace": 0}
    ),
    Case("deepseek-dense", "DeepseekV3ForCausalLM", {**DEEPSEEK, "first_k_dense_replace": 3, "hidden_act": "gelu"}),
    Case("deepseek-halves", "DeepseekV3ForCausalLM", {**DEEPSEEK, "rope_interleave": False}),
    Case("deepseek-yarn", "DeepseekV3ForCausalLM", {**DEEPSEEK, "rope_parameters": YARN}),
    Case("deepseek-classes", "DeepseekV3ForSequenceClassification", DEEPSEEK),
    Case("rwkv", "RwkvForCausalLM", RWKV),
    Case("rwkv-eps", "RwkvForCausalLM", {**RWKV, "layer_norm_epsilon": 1e-3, "tie_word_embeddings": True}),
    Case("llama-yarn", "LlamaForCausalLM", {**LLAMA, "rope_parameters": {**YARN, "mscale_all_dim": 0.0}}),
]


def case_named(name: str) -> Case:
    """Return a case by its name."""
    return next(case for case in CASES if case.name == name)


@dataclass
class Batch:
    """Rows of different lengths, padded on the right, and images for vision models."""

    tokens: Tensor
    lengths: Tensor
    source: Tensor
    source_lengths: Tensor
    images: Tensor

    @property
    def mask(self) -> Tensor:
        """The attention mask of `transformers`."""
        return (torch.arange(self.tokens.shape[1]) < self.lengths[:, None]).long()

    @property
    def source_mask(self) -> Tensor:
        """The attention mask of the source."""
        return (torch.arange(self.source.shape[1]) < self.source_lengths[:, None]).long()


def batch(seed: int = 0) -> Batch:
    """Return a batch without special tokens among the real ones."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([9, 6, 4])
    rows = []
    for width in (9, 8):
        tokens = torch.randint(5, VOCABULARY, (3, width), generator=generator)
        rows.append(torch.where(torch.arange(width) < lengths[:, None], tokens, PAD))
    images = torch.randn(3, 3, 8, 12, generator=generator)
    return Batch(rows[0], lengths, rows[1], lengths.clamp(max=8), images)


@torch.no_grad()
def ask_theirs(model: nn.Module, case: Case, data: Batch) -> Tensor:
    """Return the outputs of their model: logits of every token, of the classes, or one vector."""
    if case.kind == "image":
        answer = model(pixel_values=data.images)
    elif case.kind == "pair":
        answer = model(input_ids=data.source, attention_mask=data.source_mask, decoder_input_ids=data.tokens)
    else:
        answer = model(input_ids=data.tokens, attention_mask=data.mask)
    if "logits" in answer:
        return answer.logits
    if "prediction_logits" in answer:
        return answer.prediction_logits
    pooled = answer.get("pooler_output")
    return answer.last_hidden_state[:, 0] if pooled is None else pooled


@torch.no_grad()
def ask_ours(model: nn.Module, case: Case, data: Batch) -> Tensor:
    """Return the outputs of our model."""
    if case.kind == "image":
        return model(data.images)
    if case.kind == "pair":
        return model(data.source, data.tokens, source_lengths=data.source_lengths)
    return model(data.tokens) if case.kind == "language" else model(data.tokens, lengths=data.lengths)


@torch.no_grad()
def steps(model: nn.Module, case: Case, data: Batch) -> Tensor:
    """Return the logits of our model with a cache: a prompt of three tokens, then one token at a time."""
    pair = case.kind == "pair"
    state = model.start(data.source, data.source_lengths) if pair else model.start(len(data.tokens))
    said = []
    for piece in (data.tokens[:, :3], *data.tokens[:, 3:].split(1, 1)):
        logits, state = model.step(piece, state)
        said.append(logits)
    return torch.stack(said, 1)


def compare(theirs: Tensor, ours: Tensor, data: Batch, tolerance: float) -> None:
    """Compare outputs, without those of padding."""
    if theirs.ndim == 3 and theirs.shape[1] == data.tokens.shape[1]:
        real = data.mask.bool()
        theirs, ours = theirs[real], ours[real]
    assert theirs.shape == ours.shape
    scale = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours.float() / scale, theirs.float() / scale, rtol=0, atol=tolerance)
