"""What the plan warns of: validation data on which a score says little."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

from regard.data.batches import Indices
from regard.data.corpus import Corpus
from regard.tasks.task import Task
from regard.tasks.text import flat_rows, spread

FEW_ROWS = 20  # fewer validation rows give a score that is mostly chance
SHARED = 0.02  # share of validation rows that may be training rows, too: short texts repeat themselves
UNKNOWN = 0.5  # share of unknown tokens from which a score says little
COMPARED = 200_000  # training rows that are compared; of more, a sample
# Known tokens, with those at both ends, from which a row with unknown ones can be compared. With the 3,600 words of
# TREC's default, 18 of 272 questions are like another one but for unknown words; all of these have fewer known ones.
KNOWN = 12
AT_ONCE = 10_000
FACTOR = np.uint64(6364136223846793005)  # odd, so that no token is lost modulo 2^64 (Knuth, MMIX)
BACK = np.uint64(pow(int(FACTOR), -1, 2**64))  # its inverse
PASSAGE = 50  # tokens of a passage: texts have many shorter ones in common
PASSAGES = 1_000  # of a validation text, spread over it

Hashes = np.ndarray  # uint64, one for each row


def hash_rows(corpus: Corpus, rows: Indices) -> Hashes:
    """Return a hash of the tokens of each row: sum_t mix(x_t) F^t mod 2^64."""
    parts = [np.empty(0, np.uint64)]
    for begin in range(0, len(rows), AT_ONCE):
        tokens, lengths = flat_rows(corpus, rows[begin : begin + AT_ONCE])
        ends = np.cumsum(lengths)
        within = np.arange(len(tokens)) - np.repeat(ends - lengths, lengths)
        powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, FACTOR))
        mixed = _mix(tokens)
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed * powers[within])))
        parts.append(sums[ends] - sums[ends - lengths])
    return np.concatenate(parts)


def hash_passages(tokens: Indices) -> Hashes:
    """Return a hash of each passage of a text, from every token on: of `PASSAGE` tokens, as `hash_rows` does."""
    count = len(tokens) - PASSAGE + 1
    if count < 1:
        return np.empty(0, np.uint64)
    powers = np.cumprod(np.append(np.uint64(1), np.full(len(tokens) - 1, FACTOR)))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(_mix(tokens) * powers)))
    back = np.cumprod(np.append(np.uint64(1), np.full(count - 1, BACK)))
    return (sums[PASSAGE:] - sums[:count]) * back


def _mix(tokens: Indices) -> Hashes:
    mixed = (tokens.astype(np.uint64) + np.uint64(1)) * FACTOR
    return mixed ^ (mixed >> np.uint64(29))


def hash_pairs(corpus: Corpus, pairs: Indices) -> Hashes:
    """Return a hash of each pair: rows 2i and 2i + 1 of the corpus."""
    return hash_rows(corpus, 2 * pairs) * FACTOR + hash_rows(corpus, 2 * pairs + 1)


def hash_items(items: Iterable[bytes]) -> Hashes:
    """Return a hash of each item."""
    return np.array([int.from_bytes(blake2b(item, digest_size=8).digest(), "big") for item in items], np.uint64)


def can_compare(corpus: Corpus, rows: Indices, unknown: int) -> np.ndarray:
    """Return for each row whether its tokens tell if two are the same: no unknown ones, or many others beside them.

    "What is a <unk> ?" is another question for each unknown word.
    """
    tokens, lengths = flat_rows(corpus, rows)
    counts = np.bincount(np.repeat(np.arange(len(rows)), lengths), tokens == unknown, len(rows))
    return (counts == 0) | (lengths - counts >= KNOWN)


def compared(rows: Indices) -> Indices:
    """Return the training rows that validation rows are compared with."""
    return spread(rows, COMPARED)


def caution_validation(name: str, train: Hashes, valid: Hashes, rows: int | None = None) -> Iterator[str]:
    """Yield what is wrong with validation rows, called by `name` (text, chain): too few, or also in the training data.

    `rows` is the number of all validation rows, if only some of them can be compared.
    """
    rows = len(valid) if rows is None else rows
    yield from caution_few(name, rows)
    shared = int(np.isin(valid, train).sum())
    if shared > SHARED * rows:
        least = "at least " if len(train) == COMPARED or len(valid) < rows else ""
        rule = f"{least}{shared:,} of {rows:,} validation {name}s are in the training data, too"
        yield f"{rule}, so the score is too good; remove duplicates, or give other data with --valid"


def caution_passages(train: Indices, valid: Indices, whole: bool, unknown: int) -> Iterator[str]:
    """Yield a caution if passages of a validation text are in the training text, too.

    `train` and `valid` are the tokens of both texts; `whole` says whether `train` is all of the training text. Passages
    most of whose tokens are unknown are left out, since they are all alike.
    """
    passages, seen = hash_passages(valid), hash_passages(train)
    begins = spread(np.arange(0, len(passages), PASSAGE), PASSAGES)
    unknown_before = np.concatenate(([0], np.cumsum(valid == unknown)))
    known = unknown_before[begins + PASSAGE] - unknown_before[begins] < UNKNOWN * PASSAGE
    asked = np.sort(passages[begins[known]])
    if not len(asked):
        return
    places = np.searchsorted(asked, seen)  # much faster than to sort the training text
    share = float(np.isin(asked, seen[asked[np.minimum(places, len(asked) - 1)] == seen]).mean())
    if share > SHARED:
        rule = f"{'' if whole else 'at least '}{share:.0%} of the validation text is in the training text, too"
        yield f"{rule}, so the score is too good; remove what is there twice, or give other data with --valid"


def caution_few(name: str, rows: int) -> Iterator[str]:
    """Yield a caution if there are too few validation rows."""
    if rows < FEW_ROWS:
        counted = f"1 validation {name}" if rows == 1 else f"{rows} validation {name}s"
        yield f"{counted}: the score is mostly chance; give more data, or --valid FILE"


def caution_unknown(task: Task, learned: bool = False) -> Iterator[str]:
    """Yield a caution if most of what the model reads has no token of its own: another script, or another language.

    `learned`: the tokenizer was learned from these texts, which have too many words for it.
    """
    tokens, tokenizer = task.tokens_read(), task.tokenizer
    if tokenizer is None:
        return
    tokens = tokens[~np.isin(tokens, (tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.mask))]
    share = np.mean(tokens == tokenizer.unk) if len(tokens) else 0.0
    if share > UNKNOWN:
        rule = f"{share:.0%} of the tokens are unknown to the tokenizer, so the score says little"
        other = "choose tokenizer.kind=bpe, which knows every text, or a larger tokenizer.vocabulary"
        yield f"{rule}; {other if learned else 'give texts like those that the model was trained on'}"


def caution_classes(labels: Indices, classes: Sequence[str]) -> Iterator[str]:
    """Yield a caution if most labels occur once: the column may hold names or numbers of rows instead of classes."""
    counts = np.bincount(labels, minlength=len(classes))
    once = int((counts == 1).sum())
    if 2 * once > len(classes) and len(classes) > 2:
        yield (
            f"{once:,} of {len(classes):,} classes have one text, such as {classes[int(np.argmax(counts == 1))]!r}; "
            "is this the column of the labels? (task.label)"
        )


def caution_unmeasured(name: str, valid: Indices, classes: Sequence[str]) -> Iterator[str]:
    """Yield a caution if validation rows, called by `name`, lack classes; `caution_few` warns of very few rows.

    Rare classes are easily missed by a part that is held out at random. If one class is left, a model that always
    predicts it has an accuracy and an F1 of 1.
    """
    counts = np.bincount(valid, minlength=len(classes))
    missing = [label for label, count in zip(classes, counts, strict=True) if not count]
    if missing and len(valid) >= FEW_ROWS:
        rule = f"no validation {name} has the label {missing[0]!r}"
        if len(missing) > 1:
            rule = f"{len(missing):,} of {len(classes):,} classes have no validation {name}, such as {missing[0]!r}"
        yield f"{rule}, so the score does not count it; give more data, or --valid FILE"
