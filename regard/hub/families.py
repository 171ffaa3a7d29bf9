"""The Hugging Face families by their `model_type`.

A new family is a file beside this one and an entry here, or a file of your own that calls `regard.register`. Where
several families can express a model, the one that adds the fewest biases is written; of equals, the first.
"""

from regard.config import Registry
from regard.hub.bart import BART
from regard.hub.bert import BERT
from regard.hub.deepseek import DEEPSEEK_V3
from regard.hub.distilbert import DISTILBERT
from regard.hub.family import Family
from regard.hub.gpt2 import GPT2
from regard.hub.llama import LLAMA
from regard.hub.marian import MARIAN
from regard.hub.mistral import MISTRAL
from regard.hub.pegasus import PEGASUS
from regard.hub.qwen3 import QWEN3
from regard.hub.roberta import ROBERTA
from regard.hub.rwkv import RWKV
from regard.hub.t5 import T5
from regard.hub.vit import VIT

FAMILIES: Registry[Family] = Registry(
    "family",
    {
        "gpt2": GPT2,
        "llama": LLAMA,
        "mistral": MISTRAL,
        "qwen3": QWEN3,
        "deepseek_v3": DEEPSEEK_V3,
        "bert": BERT,
        "roberta": ROBERTA,
        "distilbert": DISTILBERT,
        "vit": VIT,
        "marian": MARIAN,
        "pegasus": PEGASUS,
        "bart": BART,
        "t5": T5,
        "rwkv": RWKV,
    },
)
