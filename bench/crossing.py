"""Simulated pedestrians at a crossing of two streets: the data of the forecaster in the box.

    dv_i/dt = (v0_i e_i - v_i) / tau + sum_j A exp((r - d_ij) / B) w_ij n_ij + sum_w A_w exp((r_w - d_iw) / B_w) n_iw

The social force model (Helbing, Molnar 1995; the constants after Helbing, Farkas, Vicsek 2000 and Johansson et al.
2007): each pedestrian i walks with its own speed v0_i towards its goal, e_i, and is pushed away by others j, more by
those in front of it (w_ij), and by walls w. Pedestrians come in from the four ends, some in pairs, and walk straight
on, turn left or turn right at the crossing, so that there are several futures. What a model learns from this is the
formula, not people.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # (pedestrians, 2), in metres or metres a second

WIDTH, REACH = 3.0, 14.0  # half the width of a street, and how far the streets reach from the middle of the crossing
SECONDS, RECORDED = 0.05, 0.4  # from one step of the simulation to the next, and from one recorded step to the next
FRAMES = 10  # frames from one recorded step to the next, as in ETH/UCY
TAU = 0.5  # seconds after which a pedestrian has its own speed again
PUSH, RANGE, NEAR = 2.1, 0.35, 0.6  # of other pedestrians: m/s^2, m, m
WALL_PUSH, WALL_RANGE, WALL_NEAR = 3.0, 0.2, 0.3  # of walls
BEHIND = 0.3  # the force of someone behind, as a share of that of someone in front
NOISE = 0.25  # of the acceleration, m/s^2
PAIRS = 0.3  # the share of arrivals that are two people, who stay together
TURNS = (0.6, 0.2, 0.2)  # straight on, left, right
RATE, SWING, PERIOD = 0.45, 0.25, 60.0  # arrivals a second: the mean, by how much it changes, and how fast (s)
BEFORE = 25.0  # seconds until the streets are filled, which are not recorded
RECORDINGS, STEPS = 32, 300  # to train on


@dataclass
class Crowd:
    """All pedestrians that are present: who they are, where they are, and what they want."""

    names: NDArray[np.int64]
    positions: Points
    velocities: Points
    speeds: NDArray[np.float64]  # that they like
    corners: Points  # the goal until the crossing is reached
    goals: Points
    turned: NDArray[np.bool_]
    partners: NDArray[np.int64]  # the name of the other one of a pair; -1: alone

    @classmethod
    def empty(cls) -> "Crowd":
        """Return an empty crowd."""
        points, numbers = np.empty((0, 2)), np.empty(0, np.int64)
        return cls(numbers, points, points, np.empty(0), points, points, np.empty(0, bool), numbers)

    def select(self, rows: NDArray[np.bool_]) -> "Crowd":
        """Return some of the pedestrians."""
        return Crowd(*(value[rows] for value in vars(self).values()))

    def join(self, other: "Crowd") -> "Crowd":
        """Return the pedestrians of both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Crowd(*(np.concatenate(both) for both in pairs))


def arrive(random: np.random.Generator, name: int) -> Crowd:
    """Return one or two pedestrians at the end of a street, who have chosen where to go."""
    count = 2 if random.random() < PAIRS else 1
    forward = np.array([(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][random.integers(4)])
    left = np.array((-forward[1], forward[0]))
    way = (forward, left, -left)[random.choice(3, p=TURNS)]
    side = random.uniform(-0.6, 0.6) * WIDTH
    sides = side + 0.7 * (np.arange(count) - (count - 1) / 2)
    speed = np.full(count, np.clip(random.normal(1.34, 0.26), 0.7, 2.0))
    out = random.uniform(-0.6, 0.6) * WIDTH + 0.7 * (np.arange(count) - (count - 1) / 2)
    across = np.array((-way[1], way[0]))
    names = np.arange(name, name + count)
    return Crowd(
        names=names,
        positions=-REACH * forward + sides[:, None] * left,
        velocities=speed[:, None] * forward,
        speeds=speed,
        corners=0.4 * WIDTH * (way - forward) + sides[:, None] * 0.3 * left,
        goals=(REACH + 3) * way + out[:, None] * across,
        turned=np.full(count, bool(way is forward)),
        partners=names[::-1].copy() if count == 2 else np.full(1, -1),
    )


def forces(crowd: Crowd, random: np.random.Generator) -> Points:
    """Return the acceleration of each pedestrian."""
    target = np.where(crowd.turned[:, None], crowd.goals, crowd.corners) - crowd.positions
    wanted = target / np.maximum(np.linalg.norm(target, axis=1, keepdims=True), 1e-6)
    total = (crowd.speeds[:, None] * wanted - crowd.velocities) / TAU
    total += NOISE / np.sqrt(SECONDS) * random.normal(size=total.shape)

    apart = crowd.positions[:, None] - crowd.positions[None]
    distance = np.maximum(np.linalg.norm(apart, axis=2), 1e-6)
    normal = apart / distance[..., None]
    heading = crowd.velocities / np.maximum(np.linalg.norm(crowd.velocities, axis=1, keepdims=True), 1e-6)
    ahead = -(normal * heading[:, None]).sum(2)
    weight = BEHIND + (1 - BEHIND) * (1 + ahead) / 2
    push = PUSH * np.exp((NEAR - distance) / RANGE) * weight
    np.fill_diagonal(push, 0)
    together = crowd.partners[:, None] == crowd.names[None]
    push = np.where(together, push - 0.8 * np.maximum(distance - 0.9, 0), push)
    total += (np.minimum(push, 8)[..., None] * normal).sum(1)

    to_wall, normals = nearest_walls(crowd.positions)
    return total + (np.minimum(WALL_PUSH * np.exp((WALL_NEAR - to_wall) / WALL_RANGE), 8))[..., None] * normals


def nearest_walls(positions: Points) -> tuple[NDArray[np.float64], Points]:
    """Return the distance from the nearest corner block of the crossing, and the direction away from it.

    The four blocks are what the streets |x| < WIDTH and |y| < WIDTH leave free.
    """
    offset = np.maximum(WIDTH - np.abs(positions), 0)  # per axis; beyond the crossing, a wall is beside and not ahead
    length = np.linalg.norm(offset, axis=1)
    normals = -np.sign(positions) * offset / np.maximum(length, 1e-6)[:, None]
    return length, normals


def simulate(seed: int, steps: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield frame, pedestrian, x and y of a recording; the crowd is let in before it begins."""
    random = np.random.default_rng(seed)
    crowd, name = Crowd.empty(), 1
    phase = random.uniform(0, 2 * np.pi)
    every = round(RECORDED / SECONDS)
    for tick in range(-round(BEFORE / SECONDS), steps * every):
        rate = RATE + SWING * np.sin(2 * np.pi * tick * SECONDS / PERIOD + phase)
        if random.random() < rate * SECONDS:
            new = arrive(random, name)
            crowd, name = crowd.join(new), name + len(new.names)
        if not len(crowd.names):
            continue
        crowd.velocities = crowd.velocities + SECONDS * forces(crowd, random)
        pace = np.linalg.norm(crowd.velocities, axis=1)
        crowd.velocities *= (np.minimum(pace, 1.4 * crowd.speeds) / np.maximum(pace, 1e-6))[:, None]
        crowd.positions = crowd.positions + SECONDS * crowd.velocities
        crowd.turned |= np.linalg.norm(crowd.corners - crowd.positions, axis=1) < 1.2
        crowd = crowd.select((np.abs(crowd.positions) < REACH + 1).all(1))
        if tick >= 0 and tick % every == 0:
            for who, (x, y) in zip(crowd.names, crowd.positions, strict=True):
                yield tick // every * FRAMES, int(who), float(x), float(y)


def write_crossing(folder: Path) -> None:
    """Write `crossing.train`, a folder of recordings, and one longer recording each to validate and to test on."""
    (folder / "crossing.train").mkdir(parents=True, exist_ok=True)
    wanted = {f"crossing.train/{seed}.txt": (seed, STEPS) for seed in range(RECORDINGS)}
    wanted |= {"crossing.val.txt": (RECORDINGS, 4 * STEPS), "crossing.test.txt": (RECORDINGS + 1, 4 * STEPS)}
    for name, (seed, steps) in wanted.items():
        rows = (f"{frame}\t{who}\t{x:.2f}\t{y:.2f}\n" for frame, who, x, y in simulate(seed, steps))
        (folder / name).write_text("".join(rows), encoding="utf-8")
