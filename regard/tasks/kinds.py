"""The tasks by name."""

from typing import Annotated

from regard.config import Kinds
from regard.tasks.classification import ClassificationConfig
from regard.tasks.language import LanguageTaskConfig
from regard.tasks.masked import MaskedConfig
from regard.tasks.translation import TranslationConfig
from regard.tasks.vision import VisionTaskConfig

TASKS = {
    "translation": TranslationConfig,
    "language": LanguageTaskConfig,
    "masked": MaskedConfig,
    "classification": ClassificationConfig,
    "vision": VisionTaskConfig,
}
TaskConfig = Annotated[
    TranslationConfig | LanguageTaskConfig | MaskedConfig | ClassificationConfig | VisionTaskConfig, Kinds(TASKS)
]
