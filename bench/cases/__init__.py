"""All cases, by device. A new one is a `Case` in a file here, and a line in `all_cases`."""

from collections.abc import Sequence

from bench.case import Case


def all_cases(device: str) -> list[Case]:
    """Return the cases of a device, in the order of the page."""
    from bench.cases import data, decoding, large, parts, recurrences, small, startup

    found = [
        *startup.CASES,
        *small.CASES,
        *large.cases(),
        *decoding.CASES,
        *parts.CASES,
        *recurrences.CASES,
        *data.CASES,
    ]
    return [case for case in found if device in case.devices]


def find_cases(device: str, names: Sequence[str]) -> list[Case]:
    """Return the cases that are named, by a part of their names; by default all that are not long."""
    cases = all_cases(device)
    if not names:
        return [case for case in cases if not case.long]
    for name in names:
        if not any(name in case.name for case in cases):
            raise SystemExit(f"no case {name!r} on {device}; there are {', '.join(case.name for case in cases)}")
    return [case for case in cases if any(name in case.name for name in names)]
