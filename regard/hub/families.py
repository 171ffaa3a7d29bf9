"""The families by their `model_type`. Another one is a file beside this one, and a line here.

Where several can say the same, the first is written.
"""

from regard.config import Registry
from regard.hub import bart, bert, deepseek, distilbert, gpt2, llama, marian, mistral, pegasus, qwen3, roberta, t5, vit
from regard.hub.table import Family

FAMILIES = Registry[Family](
    "family",
    {
        "gpt2": gpt2.FAMILY,
        "llama": llama.FAMILY,
        "mistral": mistral.FAMILY,
        "qwen3": qwen3.FAMILY,
        "deepseek_v3": deepseek.FAMILY,
        "bert": bert.FAMILY,
        "roberta": roberta.FAMILY,
        "distilbert": distilbert.FAMILY,
        "vit": vit.FAMILY,
        "marian": marian.FAMILY,
        "pegasus": pegasus.FAMILY,
        "bart": bart.FAMILY,
        "t5": t5.FAMILY,
    },
)
