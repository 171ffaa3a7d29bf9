"""Parse any number of lines: a sentence in each, whose words may be separated as in the Penn Treebank or not."""

from collections.abc import Iterator, Sequence

from regard.arguments import check_count
from regard.data.trees import MOST_WORDS, Tree, split_words
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.models.model import writes
from regard.tasks.linear_trees import tree_limit, word_pieces
from regard.tasks.tree_search import TreeSearch
from regard.use.batches import Chunks, Feedback, by_line, tokens_per_batch
from regard.use.bundle import Bundle

BEAM = 8


def parse_lines(
    bundle: Bundle, chunks: Chunks, beam: int, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, Tree | None]]:
    """Yield each line with its tree; None for a blank line."""
    bundle.check("parse")
    beam = check_count(beam, "beam")
    model, tokenizer = bundle.model, bundle.need_tokenizer()
    assert writes(model)
    search = TreeSearch.of(tokenizer, bundle.name)

    def size(words: list[str]) -> int:
        return tree_limit(word_pieces(tokenizer, words))

    def work(rows: list[list[str]]) -> list[Tree]:
        with in_use(model):
            found = search(bundle.need_engine(), model, rows, bundle.device, beam)
        bundle.check_scores(best.score for best, *_ in found)
        return [best.tree for best, *_ in found]

    tokens = max(tokens_per_batch(batch_tokens, bundle.device) // beam, 1)
    found = by_line(chunks, sentence_rows, size, work, tokens, feedback.done)
    return ((line, trees[0] if trees else None) for line, trees in found)


def sentence_rows(lines: Sequence[str]) -> list[list[list[str]]]:
    """Return the words of each line as one row; a blank line has none."""
    found = [check_sentence(line) for line in lines]
    return [[words] if words else [] for words in found]


def check_sentence(line: str, place: str = "the text") -> list[str]:
    """Return the words of a line; too many are an error with its place."""
    words = split_words(line)
    if len(words) > MOST_WORDS:
        rule = f"{len(words):,} words are too many for a sentence"
        raise InputError(f"{place}: {rule}; give one sentence in each line, of at most {MOST_WORDS:,} words")
    return words
