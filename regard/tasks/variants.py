"""Versions of the same pairs, one for each epoch in turn: the first as it is, the others varied, as by BPE-dropout.

A version is made when its epoch comes, and in the background while the model learns from the version before. So the
first update waits for the first version only.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from threading import Thread

import torch

from regard.data.batches import Draw, Order, Widths
from regard.data.tokenizer import Tokenizer
from regard.tasks.pairs import Pairs
from regard.tasks.task import Batch, Feed

SAMPLE = 500  # names of tokens that are tokenised as a sample


class Variants:
    """Versions of pairs by number; all have the same pairs. Version 0 is open, `make` opens another.

    `widest` are the most tokens of a row on each side in any version; `made_from` is all that decides the other
    versions besides the first one, as text.
    """

    def __init__(
        self,
        first: Pairs,
        count: int = 1,
        make: Callable[[int], Pairs] | None = None,
        widest: Widths | None = None,
        made_from: str = "",
    ) -> None:
        assert count == 1 or make is not None, "nothing makes the other versions"
        self.widest = widest or tuple(first.lengths.max(0, initial=0).tolist())
        self.made_from = made_from
        self._count, self._make = count, make
        self._opened = {0: first}
        self._placed: dict[int, Pairs] = {}
        self._device = torch.device("cpu")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Pairs:
        """Return a version with its tokens on the device."""
        number = range(self._count)[number]
        if number not in self._placed:
            self._placed[number] = self.open(number).to(self._device)
        return self._placed[number]

    def open(self, number: int) -> Pairs:
        """Return a version with its tokens on the host; this uses no device, so another thread may call it."""
        if number not in self._opened:
            assert self._make is not None
            self._opened[number] = self._make(number)
        return self._opened[number]

    def to(self, device: torch.device) -> None:
        """Move the tokens to a device, also those that are made later."""
        self._device = device
        self._placed = {}

    def release(self) -> None:
        """Release mapped pages."""
        for pairs in list(self._opened.values()):
            pairs.corpus.release()


class Epochs(Order):
    """One feed after the other, epoch by epoch: with BPE-dropout, lengths differ between epochs.

    `make` makes the feed of a version; it runs in another thread, so it must not use the device.
    """

    def __init__(self, count: int, make: Callable[[int], Feed]) -> None:
        self._count, self._make = count, make
        self._feeds: dict[int, Future[Feed]] = {}
        self._learned = -1  # the epoch of the last batch
        self.shapes = self.feed(0).order.shapes

    def feed(self, epoch: int) -> Feed:
        """Return the feed of an epoch, when it is made."""
        return self._begin(epoch).result()

    def epoch(self, number: int) -> Iterator[Draw]:
        """Yield the draws of the order of this epoch."""
        return self.feed(number).order.epoch(number)

    def batch(self, draw: Draw, epoch: int) -> Batch:
        """Return the batch of a draw; with the second one of an epoch, the feed of the next epoch is begun."""
        if epoch == self._learned:
            self._begin(epoch + 1)
        self._learned = epoch
        return self.feed(epoch).batch(draw, epoch)

    def _begin(self, epoch: int) -> Future[Feed]:
        number = epoch % self._count
        if number not in self._feeds:
            made = Future[Feed]()
            Thread(target=_run, args=(made, self._make, number)).start()
            self._feeds[number] = made  # only now: if no thread can be started, another call tries again
        return self._feeds[number]


def _run(made: Future[Feed], make: Callable[[int], Feed], number: int) -> None:
    try:
        made.set_result(make(number))
    except BaseException as error:
        made.set_exception(error)


def describe_variants(tokenizer: Tokenizer, seed: int, settings: Mapping[str, object]) -> str:
    """Return what decides the variants, with a sample of BPE-dropout, so that another way to draw it is noticed."""
    names = " ".join(tokenizer.names(SAMPLE))
    return repr((sorted(settings.items()), seed, tokenizer.encode_varied([names], [seed])[0].tolist()))
