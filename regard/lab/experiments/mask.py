"""Mask: what a language model learns if it may look at the token that it has to predict.

Claim: L = -sum_t log p(x_t | x_<t) is trained for all t at once, so scores of later tokens must be set to -inf before
the softmax (Vaswani et al. 2017, section 3.2.3). Without that, x_t is among the keys: the loss falls towards zero, and
the model has learned to copy, which is of no use where it writes, because nothing follows yet.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w
from torch import Tensor

from regard import draw
from regard.data.lines import read_lines
from regard.extend import registered
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.shipped import shipped
from regard.lab.spread import over_seeds
from regard.models.language import LanguageConfig, LanguageModel
from regard.parts.mask import Documents, Padding, document_positions
from regard.parts.state import Step
from regard.recipe_files import read_recipe

WITH, WITHOUT = "with mask", "without mask"
REPORTED, HIDDEN, REAL = "loss in validation", "loss with the future hidden", "share of real words"
WORD = "[A-Za-z']+"
PROMPTS = ("KING", "O my lord", "What is", "The ", "First Citizen:")


class UnmaskedModel(LanguageModel):
    """A language model without the causal mask: in training, every token of a text sees every other."""

    def forward(self, tokens: Tensor, *, documents: Tensor | None = None, **other: Any) -> Tensor:
        """Score what follows each token, which the token sees."""
        mask = Padding() if documents is None else Documents(documents)
        positions = None if documents is None else document_positions(documents)
        return self.logits(self.decode(tokens, Step(mask, positions)))


@dataclass(frozen=True, kw_only=True)
class UnmaskedConfig(LanguageConfig):
    """A language model without the causal mask, for comparison."""

    tasks = ("language",)

    def build(self) -> LanguageModel:
        """Build the model of the same parts."""
        masked = super().build()
        return UnmaskedModel(masked.embed, masked.stack, masked.head)


@dataclass(frozen=True)
class _Settings:
    """The text and the model, and how long it is trained."""

    characters: int  # of Shakespeare
    dim: int
    depth: int
    window: int
    steps: int
    tokens: int  # in an update
    written: int  # characters that each model writes for each prompt


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    """Train the same model with and without the mask; hide the future from both, and let both write."""
    with registered(("model", "language-unmasked", UnmaskedConfig)):
        yield from _compare_masks(lab, settings)


def _compare_masks(lab: Lab, settings: _Settings) -> Iterator[Row]:
    text = _text(settings.characters)
    known = set(re.findall(WORD, text))
    sizes = [f"model.dim={settings.dim}", f"model.depth={settings.depth}", f"task.window={settings.window}"]
    sizes += [f"model.layers.block.feedforward.hidden={4 * settings.dim}", "tokenizer.kind=char"]
    training = [f"train.tokens={settings.tokens}", "train.schedule.kind=linear"]
    recipe = read_recipe(lab.recipe or "writer")
    unmasked = {**recipe, "model": {**recipe["model"], "kind": "language-unmasked"}}  # nothing else differs
    for number, (trained, table) in enumerate({WITH: recipe, WITHOUT: unmasked}.items()):
        lab.progress(f"training {trained}", number / 2)
        name = trained.replace(" ", "-")
        run = lab.train(
            name,
            "language",
            [lab.file("text.txt", text)],
            recipe=lab.file(f"{name}.toml", tomli_w.dumps(table)),
            steps=settings.steps,
            overrides=[*sizes, *training],
        )
        model, task = run.model(lab.device), run.task(device=lab.device)
        assert isinstance(model, LanguageModel)
        reported = task.measure(model)["loss"]
        hidden = task.measure(LanguageModel(model.embed, model.stack, model.head))["loss"]  # the same parts, masked
        made = run.load(str(lab.device)).generate(PROMPTS, tokens=settings.written, temperature=0.8, seed=lab.seed)
        words = [word for line in made for word in re.findall(WORD, line)[1:-1]]  # the ends may be incomplete
        yield {
            "trained": trained,
            REPORTED: reported,
            HIDDEN: hidden,
            REAL: sum(word in known for word in words) / max(len(words), 1),
            "text": " ".join((PROMPTS[0] + made[0]).split())[:90],
        }


def _text(characters: int) -> str:
    return "\n".join(read_lines(shipped("shakespeare.txt")))[:characters] + "\n"


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    """Draw both losses, and the share of real words."""
    losses = [{**row, "measured": name, "loss": row[name]} for row in rows for name in (REPORTED, HIDDEN)]
    yield Picture(
        "losses",
        "Without the mask the loss in validation looks far too good: the model copies the next character. Where the "
        "future is hidden, as it is when the model writes, it is worse than the model with a mask.",
        draw.bars(losses, x="trained", y="loss", by="measured", title="Loss in nats per character"),
    )
    texts = {row["trained"]: row["text"] for row in reversed(rows)}
    wrote = "; ".join(f"{trained}: “{text}”" for trained, text in sorted(texts.items()))
    yield Picture(
        "words",
        f"How many of the words that each model writes occur in its text. The first seed wrote {wrote}.",
        draw.bars(rows, x="trained", y=REAL, title="Real words in what the models write"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    """Say yes if without the mask the loss looks better, but is worse with the future hidden, and the text is worse."""
    on, off = {"trained": WITH}, {"trained": WITHOUT}
    better = over_seeds(rows, REPORTED, off).high < over_seeds(rows, REPORTED, on).low
    worse = over_seeds(rows, HIDDEN, off).low > over_seeds(rows, HIDDEN, on).high
    fewer = over_seeds(rows, REAL, off).high < over_seeds(rows, REAL, on).low
    return Verdict(
        better and worse and fewer,
        f"Without the mask the loss in validation is {over_seeds(rows, REPORTED, off)} nats per character instead of "
        f"{over_seeds(rows, REPORTED, on)}, but {over_seeds(rows, HIDDEN, off)} as soon as the future is hidden. The "
        f"share of real words in its text is {over_seeds(rows, REAL, off)}; with the mask it is "
        f"{over_seeds(rows, REAL, on)}.",
    )


EXPERIMENT = Experiment(
    name="mask",
    title="Training without the causal mask: the loss that looks too good",
    claim="Attention sees all tokens at once. If a model is trained on tokens that it can look at, it relies on "
    "information that is not available when it writes; so the future is masked by adding -inf to the scores before the "
    "softmax.",
    source="Lecture notes from NMT to the Transformer, 10.5, 'Problem 3: looking into the future'; Vaswani et al. "
    "2017, Attention Is All You Need, section 3.2.3.",
    method="The same small language model of characters is trained twice on Shakespeare, with the same data, seed "
    "and number of updates: once with the causal mask, once without. Reported are the loss in validation as each "
    "model is trained (teacher forcing), the loss of the same weights with the future hidden, and how many of the "
    "words in the text that each writes occur in Shakespeare's text.",
    vary="`regard lab mask --scale full` trains longer on all of Shakespeare; `--recipe` takes another language model "
    "with attention. With a convolution or a recurrence there is nothing to unmask.",
    scales={
        "tiny": _Settings(8000, 32, 1, 16, 40, 256, 20),
        "default": _Settings(200_000, 64, 2, 64, 250, 1536, 300),
        "full": _Settings(1_115_394, 256, 6, 256, 3000, 16_384, 1000),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    recipes=True,
)
