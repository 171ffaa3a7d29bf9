"""The files of a run folder.

recipe.toml          the resolved recipe: `regard train RUN/recipe.toml --run OTHER` repeats the run
config.json          the model's part of the recipe
model.safetensors    the weights that did best on the validation data
tokenizer.json
checkpoints/         the training state after some steps, to resume from: see checkpoint.py
averaging/           the last weights, to be averaged at the end
probe/               attention weights on one validation row at a few steps: see training/probe.py
metrics.jsonl, samples.jsonl, sessions.jsonl: see records.py
evaluation.json      what the best weights measure, once the run is finished: see training/result.py
tensorboard/, curves.png, report.html
.lock                held by the process that trains: see ownership.py
"""

import re

RECIPE = "recipe.toml"
CHECKPOINTS = "checkpoints"
AVERAGING = "averaging"
PROBE = "probe"
METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"
SESSIONS = "sessions.jsonl"
EVALUATION = "evaluation.json"
EVENTS = "tensorboard"
CURVES = "curves.png"
REPORT = "report.html"
LOCK = ".lock"

STEP_FILE = re.compile(r"step-(\d{8,})\.safetensors")  # in AVERAGING and PROBE


def step_name(step: int) -> str:
    """Return the name under which something of a step is saved."""
    return f"step-{step:08d}"


# The end of a message about a folder that does not exist. The user may have given the name of a model on the Hub.
FOLDER_REMEDY = (
    "give the folder that `regard train` printed, a name of `regard models`, or a Hugging Face folder "
    "(download one with `hf download NAME --local-dir FOLDER`)"
)
