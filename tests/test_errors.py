"""How a message is put together."""

import pytest

from regard.errors import ConfigError, InputError, RegardError, at, choices


def test_a_config_error_is_path_and_rule() -> None:
    error = ConfigError("must be even", "model.dim")
    assert (str(error), error.path, error.rule) == ("model.dim: must be even", "model.dim", "must be even")
    assert str(ConfigError("must be even")) == "must be even"
    assert issubclass(ConfigError, RegardError)
    assert issubclass(InputError, RegardError)


def test_at_puts_places_in_front_from_the_inside_out() -> None:
    with pytest.raises(ConfigError) as caught, at("model"), at("layers.block"):
        raise ConfigError("must be even", "dim")
    assert str(caught.value) == "model.layers.block.dim: must be even"
    with pytest.raises(ConfigError) as caught, at("model"):
        raise ConfigError("must be even")
    assert (caught.value.path, caught.value.rule) == ("model", "must be even")


def test_at_leaves_other_errors_alone() -> None:
    error = InputError("too long")
    with pytest.raises(InputError) as caught, at("model"):
        raise error
    assert caught.value is error


def test_choices_are_sorted_with_the_nearest_in_front() -> None:
    assert choices("depht", ["width", "depth"]) == "did you mean 'depth'? (one of depth, width)"
    assert choices("zzz", ["width", "depth"]) == "use one of depth, width"
    assert choices(3, {"b": 1, "a": 2}) == "use one of a, b"
    assert choices("z", ["a"]) == "use a"
    assert choices("a", []) == "there is nothing to choose from"


def test_a_message_lists_some_of_many_choices() -> None:
    names = [f"layer.{number:04}" for number in range(2000)]
    listed = ", ".join(names[:40])
    assert choices("zzz", names) == f"use one of {listed}, ... of 2,000"
    assert choices("layer.1999x", names) == f"did you mean 'layer.1999'? (one of {listed}, ... of 2,000)"
