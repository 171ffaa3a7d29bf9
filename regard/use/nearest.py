"""The nearest words of a table of word vectors."""

from collections.abc import Iterable, Iterator, Sequence

from regard.arguments import check_count
from regard.errors import InputError
from regard.models.word2vec import Word2Vec
from regard.tasks.word_table import WordTable
from regard.use.bundle import Bundle


def nearest_words(
    bundle: Bundle, chunks: Iterable[Sequence[str]], count: int
) -> Iterator[tuple[str, list[tuple[str, float]] | None]]:
    """Yield each line, a word or an expression, with the nearest words and their cosines; None for a blank line."""
    if not isinstance(bundle.model, Word2Vec):
        rule = f"is {bundle.description}, not a table of word vectors"
        raise InputError(f"{bundle.name}: {rule}; train one with `regard train vectors`")
    count = check_count(count, "count")
    table = WordTable.of(bundle.model, bundle.need_tokenizer())
    return ((line, table.find(line, count) if line.strip() else None) for lines in chunks for line in lines)
