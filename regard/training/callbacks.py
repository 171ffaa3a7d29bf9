"""Callbacks: objects that are called while a model is trained, for trackers such as wandb or MLflow.

    class Print:
        def on_update(self, step, metrics):      # every train.log_every updates: loss, rate, norm, ...
            print(step, metrics["loss"])

        def on_validation(self, step, metrics):  # the values of the task: loss, bleu, accuracy, ...
            print(step, metrics)

    regard.train(task, callbacks=[Print()])

A callback needs only the methods it uses. With several processes, only the first one calls them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from regard.errors import RegardError

Event = Literal["on_update", "on_validation"]
EVENTS: tuple[Event, ...] = ("on_update", "on_validation")


def list_callbacks(callbacks: Iterable[Any]) -> tuple[Any, ...]:
    """Return the callbacks as a tuple; reject an object that would never be called."""
    if not isinstance(callbacks, Iterable):
        raise RegardError(f"callbacks={callbacks!r} must be a list of objects; put one into brackets")
    listed = tuple(callbacks)  # they are called many times, and a generator yields them once
    for callback in listed:
        if isinstance(callback, type):
            raise RegardError(f"callback {callback!r} is a class; give an object of it: {callback.__name__}(...)")
        if not any(callable(getattr(callback, event, None)) for event in EVENTS):
            raise RegardError(f"callback {callback!r} has none of the methods {', '.join(EVENTS)}; give it one of them")
    return listed


def notify(callbacks: Sequence[Any], event: Event, step: int, metrics: Mapping[str, float]) -> None:
    """Call the method of every callback that has it."""
    for callback in callbacks:
        if method := getattr(callback, event, None):
            method(step, dict(metrics))
