"""Processes that run cases: one hang, crash or exhausted memory ends a process, and not the fuzzer."""

import multiprocessing
import os
import resource
import shlex
import shutil
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

FOLDER = Path("build/fuzz")
HARD = 900  # seconds after which a case that waits for something is killed; the machine may be busy
MEMORY = 8 << 30  # bytes of address space that a case may add


class Worker:
    """A process that runs cases one after the other; it is killed if one of them hangs."""

    def __init__(self, number: int, verb: str) -> None:
        self.number, self.verb, self.seed, self.ready, self.dead, self.since = (
            number,
            verb,
            None,
            False,
            False,
            time.monotonic(),
        )
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.folder = (FOLDER / f"{os.getpid()}-{number}").absolute()  # several fuzzers may run at once
        self.process = context.Process(target=_work, args=(theirs, self.folder, verb))
        self.process.start()
        theirs.close()

    def begin(self, seed: int) -> None:
        """Start a case."""
        self.seed, self.since = seed, time.monotonic()
        self.pipe.send(seed)

    def results(self) -> list[tuple[int, str | None, str]]:
        """Return what is known now: nothing, or the result of the case; a case that ended its process failed."""
        try:
            if self.pipe.poll():
                answer = self.pipe.recv()
                if answer is None:
                    self.ready = True
                    return []
                self.seed = None
                return [answer]
        except (EOFError, OSError):
            self.dead = True
            self.process.join()
            return self._lost(f"the process ended with {self.process.exitcode}")
        if self.seed is not None and time.monotonic() - self.since > HARD:
            self.dead = True
            self.process.kill()
            return self._lost("no end in time, and no reaction")
        return []

    def _lost(self, rule: str) -> list[tuple[int, str | None, str]]:
        if self.seed is None:
            raise SystemExit(f"a worker of the fuzzer cannot start: exit code {self.process.exitcode}")
        from .cases import draw_case

        error = self.folder / str(self.seed) / "stderr"
        said = error.read_text("utf-8", "backslashreplace") if error.exists() else ""
        command = shlex.join(draw_case(self.seed, self.verb).arguments)
        return [(self.seed, rule, f"{rule}\n\n$ regard {command}\n\n{said[-6000:]}")]

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        shutil.rmtree(self.folder, ignore_errors=True)


def _work(pipe: Connection, folder: Path, verb: str) -> None:
    """Make a world, then run the cases that arrive."""
    sys.dont_write_bytecode = True
    shutil.rmtree(folder, ignore_errors=True)
    os.environ.update(MPLCONFIGDIR=str(folder / "matplotlib"), REGARD_CACHE=str(folder / "cache"), OMP_NUM_THREADS="1")
    import torch

    from .run import Fuzzer
    from .world import make_world

    torch.set_num_threads(1)
    fuzzer = Fuzzer(make_world(folder / "world"), folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    pipe.send(None)
    while True:
        seed = pipe.recv()
        failure = fuzzer.try_seed(seed, verb)
        pipe.send((seed, None, "") if failure is None else (seed, failure.rule, failure.details))
