"""The tasks by name."""

from regard.config import Kinds
from regard.tasks.classification import ClassificationConfig
from regard.tasks.defaults import TaskConfig as TaskConfig  # the import registers its kinds
from regard.tasks.distances import DistancesConfig
from regard.tasks.language import LanguageTaskConfig
from regard.tasks.masked import MaskedConfig
from regard.tasks.parsing import ParsingConfig
from regard.tasks.residues import ResiduesConfig
from regard.tasks.trajectories import TrajectoriesConfig
from regard.tasks.translation import TranslationConfig
from regard.tasks.vectors import VectorsConfig
from regard.tasks.vision import VisionTaskConfig

TASKS = Kinds(
    "task",
    TaskConfig,
    {
        "translation": TranslationConfig,
        "language": LanguageTaskConfig,
        "masked": MaskedConfig,
        "vectors": VectorsConfig,
        "classification": ClassificationConfig,
        "vision": VisionTaskConfig,
        "trajectories": TrajectoriesConfig,
        "parsing": ParsingConfig,
        "residues": ResiduesConfig,
        "distances": DistancesConfig,
    },
)
