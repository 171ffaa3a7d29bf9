"""The recurrent cells by name."""

from regard.config import Kinds
from regard.parts.fused_cells import ElmanConfig, LSTMConfig, TorchGRUConfig
from regard.parts.gated_cells import GRUConfig, MUT1Config, MUT2Config, MUT3Config
from regard.parts.recurrent import RecurrentConfig

RECURRENT = Kinds(
    "cell",
    RecurrentConfig,
    {
        "elman": ElmanConfig,
        "lstm": LSTMConfig,
        "gru": GRUConfig,
        "torch-gru": TorchGRUConfig,
        "mut1": MUT1Config,
        "mut2": MUT2Config,
        "mut3": MUT3Config,
    },
)
