"""Translation: predict each target token from the source and the target before it (teacher forcing); BLEU and chrF."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn

from regard.config import ColumnName, Count, NotNegative, Rate, Table
from regard.data.batches import Indices
from regard.data.columns import PAIRED, FileReading
from regard.data.read import Skipped
from regard.data.tables import is_table
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.decode.beam import beam_search
from regard.decode.engine import Given
from regard.decode.rows import fit_limits
from regard.decode.static import KeptEngine
from regard.errors import ConfigError, InputError
from regard.models.model import StepModel
from regard.quantity import list_counts
from regard.tasks.baselines import MOST_LINKS, Baseline, learn_dictionary
from regard.tasks.defaults import Amount, TaskConfig
from regard.tasks.metric import TranslationScorer, bleu, translation_scores
from regard.tasks.pair_task import PairTask, check_pairs, hold_out_pairs, nothing_left
from regard.tasks.pairs import PairFiles, Pairs
from regard.tasks.sample import Sample
from regard.tasks.text import flat_rows, learn_tokenizer, shown, spread, text_key
from regard.tasks.variants import Variants, describe_variants

VARIANTS = 8  # of a text that is tokenised with BPE-dropout; later epochs repeat them
BASELINE_ROWS = 1000  # sentences on which baselines are measured
LONGEST = 128  # tokens of a sentence, if the model has that many positions
HIGH_DROPOUT = 8_000_000  # target tokens; fairseq and joeynmt have 0.3 for the 4 million of IWSLT14


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(TaskConfig):
    """Pairs in two files with the same number of lines, or in two columns of tables (then without `target`)."""

    recipe = "translator"
    models = ("seq2seq", "recurrent-seq2seq")
    hub_task = "translation"
    file_keys = ("source", "target", "valid_source", "valid_target")
    after_reading = ("longest", "smoothing", "r_drop")
    length_key = "longest"
    roles = PAIRED
    module_methods = ("forward", "begin", "step", "longest")  # BLEU needs translations
    passes = 40

    source: tuple[str, ...]
    """Files of source sentences, one per line; or tables with both sides."""
    target: tuple[str, ...] = ()
    """Files of their translations, line by line; none if the source is a table."""
    valid_source: tuple[str, ...] = ()
    """Source sentences to validate on; by default a part of the training data is held out."""
    valid_target: tuple[str, ...] = ()
    """Their translations."""
    source_column: ColumnName | None = None
    """The column of a table with the source, by name or number; absent: source, the first language, or of two columns
    the first.
    """
    target_column: ColumnName | None = None
    """The column of a table with the target, by name or number; absent: target, the second language, or of two columns
    the second.
    """
    header: bool | None = None
    """Whether the first row of a TSV or CSV names the columns; absent: if it looks like it."""
    longest: Count = LONGEST
    """Maximum number of tokens on either side; longer pairs are left out of training, and cut in validation."""
    smoothing: Rate = 0.1
    """Share of the target probability spread over all tokens (Szegedy et al. 2016)."""
    r_drop: NotNegative = 0.0
    """Weight of the divergence between two passes with different dropout (R-Drop, Liang et al. 2021); 0: one pass."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        for kind, ours, theirs in (
            ("source and target", self.source, self.target),
            ("valid_source and valid_target", self.valid_source, self.valid_target),
        ):
            if theirs and len(ours) != len(theirs):
                raise ConfigError(f"{kind} must name the same number of files: {len(ours)} and {len(theirs)}")
        if not self.source:
            raise ConfigError("source must name at least one file")

    @classmethod
    def from_files(cls, files: Sequence[str], valid: Sequence[str]) -> Table:
        """Return the settings that name a source and a target file, or tables of pairs, for each purpose."""
        if not files:
            raise ConfigError("name a source and a target file, or a table of pairs")
        sides = [*_sides(files), *_sides(valid)]
        keys = ("source", "target", "valid_source", "valid_target")
        return {key: list(names) for key, names in zip(keys, sides, strict=True) if names}

    def training_files(self) -> tuple[str, ...]:
        """Return the names of the files to train on."""
        return (*self.source, *self.target)

    def with_columns(self) -> "TaskConfig":
        """Return the settings with the columns of the first table, if there are tables."""
        return self if self.target else super().with_columns()

    def pair_files(self, source: Sequence[str], target: Sequence[str]) -> PairFiles:
        """Return files with the columns to read."""
        return PairFiles(tuple(source), tuple(target), self.column_options())

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how each pair of files, or each table, is read."""
        sides = [_sides(files)] if files else [(self.source, self.target), (self.valid_source, self.valid_target)]
        return [reading for source, target in sides for reading in self.pair_files(source, target).readings()]

    def suggest_length(self, device: str, positions: int | None) -> int | None:
        """Return the default, limited by the positions of the model."""
        return None if positions is None else min(LONGEST, positions)

    def suggest_settings(self, device: str) -> Table:
        """Return R-Drop for little data on an accelerator: it raises BLEU on Multi30k from 41.5 to 42.9.

        It needs twice the time, which a CPU uses better for more updates.
        """
        return {"r_drop": 5.0} if self.is_little(self.target or self.source) and device != "cpu" else {}

    def suggest_model(self, size: str, amount: Amount) -> Table:
        """Return high dropout for little data, as published small-data Transformers have."""
        dropout = 0.3 if amount.tokens < HIGH_DROPOUT else 0.1
        side = {"layers": {"block": {"dropout": dropout}}}
        return {"encoder": side, "decoder": side, "embed": {"dropout": dropout}}

    def suggest_optimizer_kind(self, pretrained: bool) -> str:
        """Return Muon: after 1,000 updates on Multi30k, BLEU is 36.2 with it and 30.5 with AdamW (size tiny)."""
        return "adamw" if pretrained else "muon"

    def suggest_optimizer(self, kind: str, dim: int, pretrained: bool) -> Table:
        """Return the betas of the Transformer and less decay for AdamW."""
        found = super().suggest_optimizer(kind, dim, pretrained)
        return found if kind == "muon" or pretrained else found | {"betas": [0.9, 0.98], "decay": 0.001}

    def suggest_schedule_kind(self, optimizer: str, pretrained: bool) -> str:
        """Return the schedule that is usual with Muon, or that of the Transformer with AdamW."""
        return "linear" if pretrained or optimizer == "muon" else "inverse-sqrt"

    def suggest_training(self) -> Table:
        """Return averaging of the last weights, as many as Vaswani et al. 2017 average for their base model."""
        return {"average": 5}

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Translation":
        """Read the pairs, learn the tokenizer, tokenise."""
        files = self.pair_files(self.source, self.target)
        key = text_key(self, source=self.source, target=self.target)
        skipped = Skipped()

        def texts() -> Iterator[str]:
            return chain.from_iterable(files.read(Skipped()))

        left_out = Skipped()
        if not any(True for _ in files.read(left_out)):
            raise nothing_left("pair", "train on", self.source, left_out)
        say("learning the tokenizer")
        learned = learn_tokenizer(tokenizer, key, texts)
        say("tokenising")
        first = Pairs.open(files, key, learned, self.longest, skipped, 0)
        check_pairs(first, "train on", self.source, skipped)
        if self.valid_source:
            held = self.pair_files(self.valid_source, self.valid_target)
            held_key = text_key(self, source=self.valid_source, target=self.valid_target)
            rows, valid = np.arange(first.count), Pairs.open(held, held_key, learned, self.longest, skipped)
            check_pairs(valid, "validate on", self.valid_source, skipped)
        else:
            rows, valid = hold_out_pairs(first, self.source)
        if not tokenizer.dropout:
            return Translation(self, learned, skipped, Variants(first.take(rows)), valid)
        widest = first.widest(self.longest)

        def make(variant: int) -> Pairs:
            return Pairs.open(files, key, learned, self.longest, Skipped(), variant, seed, widest).take(rows)

        made_from = describe_variants(learned, seed, {"dropout": learned.dropout, "widest": widest})
        return Translation(self, learned, skipped, Variants(first.take(rows), VARIANTS, make, widest, made_from), valid)

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "Translation":
        """Open other files to measure a model on: a source and a target, or one table."""
        if len(files) > 2 and not _are_tables(files):
            raise InputError("a translator is measured on a source file and a target file, or on tables of pairs")
        skipped = Skipped()
        source, target = _sides(files)
        key = text_key(self, source=source, target=target)
        valid = Pairs.open(self.pair_files(source, target), key, tokenizer, self.longest, skipped)
        check_pairs(valid, "measure", source, skipped)
        return Translation(self, tokenizer, skipped, Variants(valid), valid)


def _are_tables(files: Sequence[str]) -> bool:
    return all(is_table(Path(name)) or Path(name).is_dir() for name in files)


def _sides(files: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the sources and the targets of files that were named in order: tables, or a source and a target."""
    if _are_tables(files):
        return files, ()
    if len(files) > 2:
        remedy = "give a source and a target, or tables of pairs; for more, repeat --source and --target"
        raise ConfigError(f"{len(files)} files ({', '.join(files)}) for pairs of sentences; {remedy}")
    return files[:1], files[1:]


class Translation(PairTask):
    """L = -sum_t log p(y_t | y_<t, x), the end token included; BLEU and chrF of greedy translations."""

    name = "translation"
    metric = "bleu"

    def __init__(
        self,
        config: TranslationConfig,
        tokenizer: Tokenizer,
        skipped: Skipped,
        train: Variants,
        valid: Pairs,
    ) -> None:
        super().__init__(config, tokenizer, skipped, train, valid)
        self._engine = KeptEngine()
        self._scorer: TranslationScorer | None = None

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure loss and perplexity on all pairs, BLEU and chrF of greedy translations of some."""
        made, wanted = self.translations(model, spread(np.arange(self.valid.count), rows))
        return {**self.measure_loss(model), **self._scores(made, wanted, again=rows is not None)}

    def _scores(self, made: list[str], wanted: list[str], again: bool) -> dict[str, float]:
        """Score translations; while a model is trained, the same rows are scored again and again."""
        if not again:
            return translation_scores(made, wanted)
        if self._scorer is None or self._scorer.wanted != wanted:
            self._scorer = TranslationScorer(wanted)
        return self._scorer(made)

    def translations(self, model: nn.Module, rows: Indices) -> tuple[list[str], list[str]]:
        """Translate validation rows greedily; return the translations and the references."""
        writer = cast(StepModel, model)  # or a module of the user with the same methods
        order = np.argsort(-self.valid.lengths[rows, 0], kind="stable")
        made: list[str] = [""] * len(rows)
        size = self.rows_at_once(self.at_once)
        for begin in range(0, len(order), size):
            part = order[begin : begin + size]
            lengths = self.valid.lengths[rows[part], 0]
            source = self.valid.corpus.padded(self.valid.row(rows[part], 0), int(lengths.max()), self.special.pad)
            start = torch.full((len(part), 1), self.special.start, device=self.device)
            given = Given(start, None, source, torch.from_numpy(lengths).to(self.device))
            limits = fit_limits(writer, given, (2 * lengths + 10).tolist())
            with self._engine.of(writer) as engine:
                found = beam_search(engine, given, end=self.special.end, limits=limits, beam=1)
            written = [best.ids for (best,) in found]
            for row, text in zip(part, self.special.decode(written), strict=True):
                made[row] = text
        return made, self.texts(rows, 1)

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure BLEU of copying the source, and of a dictionary: the most likely token for each source token."""
        rows = spread(np.arange(self.valid.count), BASELINE_ROWS)
        wanted, pairs = self.texts(rows, 1), self.train[0]
        yield Baseline("copy of the source", bleu(self.texts(rows, 0), wanted))
        links = int(pairs.lengths.prod(1).mean())
        taken = pairs.row(spread(np.arange(pairs.count), max(MOST_LINKS // links, 1)), 0)
        known = learn_dictionary(flat_rows(pairs.corpus, taken), flat_rows(pairs.corpus, taken + 1))
        tokens, lengths = flat_rows(self.valid.corpus, self.valid.row(rows, 0))
        made = np.split(np.array([known.get(token, token) for token in tokens.tolist()], np.int64), np.cumsum(lengths))
        how = f"token by token, IBM model 1 of {list_counts({'pairs': len(taken)})}"
        yield Baseline("dictionary", bleu(self.special.decode(made[:-1]), wanted), how)

    def samples(self, model: nn.Module) -> list[Sample]:
        """Translate three sentences."""
        rows = shown(self.valid.count)
        made, wanted = self.translations(model, rows)
        return [Sample(*texts) for texts in zip(self.texts(rows, 0), wanted, made, strict=True)]
