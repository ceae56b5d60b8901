"""Hunts on one target, in a process of its own: `python -m tools.fuzzing.hunt TARGET --seconds N --out DIR`.

With atheris, if it is installed: it is told which code of the package each input reaches, and goes on from those that
reach something new. Without it, inputs are changed at random. Faults do not end the hunt; each is written once to
DIR/faults, and what came of it to DIR/result.json. With --large, inputs of 1 MiB are tried instead, each of them once:
the kept ones repeated, as a whole and in their parts.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import logging
import os
import random
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

_MOST_BYTES = 16 << 10
_MOST_FAULTS = 50
_MOST_TAKEN = 2000
_BITS = 1 << 24
_ALSO_EACH = 100
_EACH_SECS = 10.0
"""So often the result is written: a hunt that is ended from outside has one, too."""


class Hunt:
    """One target, its inputs and what came of them."""

    def __init__(self, name: str, seconds: float, out: Path, *, is_large: bool = False) -> None:
        from tools.fuzzing.corpus import read_corpus
        from tools.fuzzing.measure import Counts
        from tools.fuzzing.targets import TARGETS

        self.target = TARGETS[name]
        self.counts = Counts()
        self.out = out
        self.inputs = [*self.target.seeds(), *read_corpus(name)]
        self.faults: dict[str, str] = {}
        self.is_large = is_large
        self._seconds = seconds
        self._began = time.process_time()
        self._next = _EACH_SECS
        self._seen: set[tuple[str, str]] = set()
        self._taken: list[bytes] = []
        self._refused = bytearray(_BITS >> 3)
        """A bit for each hash of an input that was refused: a set of all would grow without end."""
        (out / "faults").mkdir(parents=True, exist_ok=True)

    @property
    def seconds(self) -> float:
        """Processor time so far."""
        return time.process_time() - self._began

    def take(self, data: bytes) -> None:
        """Gives an input to the target; ends the process when the time is over."""
        from tools.fuzzing.measure import try_input

        try:
            if not try_input(self.target, data, self.counts):
                bit = hash(data) % _BITS
                self._refused[bit >> 3] |= 1 << (bit & 7)
            elif self.target.also and self.counts.tried % _ALSO_EACH == 0:
                self.target.also()
        except Exception as error:
            self._note(data, error)
        if self.seconds > self._next:
            self._next += _EACH_SECS
            self.write()
        if self.seconds > self._seconds:
            self.end()

    def _note(self, data: bytes, error: Exception) -> None:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in f.filename]
        words = " ".join(str(error).split())[:60] if isinstance(error, AssertionError) else ""
        place = f"{type(error).__name__} at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno} {words}"
        key = (type(error).__name__, f"{frames[-1].filename}:{frames[-1].lineno}")
        if key in self._seen or len(self._seen) >= _MOST_FAULTS:
            return
        self._seen.add(key)
        name = hashlib.sha256(data).hexdigest()[:16]
        (self.out / "faults" / name).write_bytes(data)
        (self.out / "faults" / f"{name}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        self.faults[name] = place
        print(f"{self.target.name}: {place} ({len(data)} bytes)", file=sys.stderr, flush=True)

    def write(self) -> None:
        """Writes what came of it so far."""
        result = {
            "target": self.target.name,
            "what": self.target.what,
            "seconds": round(self.seconds, 1),
            "tried": self.counts.tried,
            "refused": self.counts.refused,
            "slowest": round(self.counts.slowest, 3),
            "most_memory": self.counts.most_memory,
            "guided": "atheris" in sys.modules,
            "large": self.is_large,
            "faults": self.faults,
        }
        (self.out / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")

    def end(self) -> None:
        """Writes the result, and ends the process without what is left to do: atheris does not return."""
        from tools.fuzzing.target import scratch

        self.write()
        shutil.rmtree(scratch(), ignore_errors=True)
        sys.stderr.flush()
        os._exit(0)

    def hunt_blindly(self) -> None:
        """Changes inputs at random until the time is over."""
        rng = random.Random(self.target.name)
        for data in self.inputs:
            self.take(data)
        while True:
            self.take(self._change(rng.choice(self.inputs), rng, _MOST_BYTES))

    def hunt_large(self) -> None:
        """Tries inputs of 1 MiB, of each kind one before the next, until none is left or the time is over."""
        from tools.fuzzing.growth import grown_inputs

        ways = [grown_inputs(self.target, [data]) for data in self.inputs]
        while ways:
            for way in [*ways]:
                data = next(way, None)
                if data is None:
                    ways.remove(way)
                else:
                    self.take(data)
        self.end()

    def hunt_guided(self, atheris: Any) -> None:
        """Lets atheris change inputs until the time is over."""
        corpus = self.out / "corpus"
        corpus.mkdir(exist_ok=True)
        for data in self.inputs:
            (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

        def change(data: bytes, most: int, seed: int) -> bytes:
            rng = random.Random(seed)
            return self._change(data, rng, most) if rng.randrange(20) else bytes(atheris.Mutate(data, most))

        def join(one: bytes, other: bytes, most: int, seed: int) -> bytes:
            from tools.fuzzing.mutations import cross

            rng = random.Random(seed)
            one = self._one_taken(one, rng)
            joined = cross(one, self._one_taken(other, rng), self.target, rng, most)
            return joined if joined != one else self._change(one, rng, most)

        options = [f"-max_len={_MOST_BYTES}", "-len_control=0", "-rss_limit_mb=0", "-timeout=120", "-verbosity=0"]
        arguments = ["hunt", str(corpus), *options, "-detect_leaks=0"]
        atheris.Setup(arguments, self.take, custom_mutator=change, custom_crossover=join)
        atheris.Fuzz()

    def _change(self, data: bytes, rng: random.Random, most: int) -> bytes:
        from tools.fuzzing.mutations import mutate

        return mutate(self._one_taken(data, rng), self.target, rng, most)

    def _one_taken(self, data: bytes, rng: random.Random) -> bytes:
        """Returns the input, or in place of one that was refused mostly another: behind a refusal there is nothing."""
        bit = hash(data) % _BITS
        if self._refused[bit >> 3] & 1 << (bit & 7):
            return rng.choice(self._taken) if self._taken and rng.randrange(16) else data
        if len(self._taken) < _MOST_TAKEN:
            self._taken.append(data)
        else:
            self._taken[rng.randrange(_MOST_TAKEN)] = data
        return data


def main() -> None:
    """Runs one hunt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, required=True, help="of processor time")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--blind", action="store_true", help="without atheris, though it is installed")
    parser.add_argument("--large", action="store_true", help="inputs of 1 MiB, without atheris")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("error", RuntimeWarning)  # of numpy: the package answers for every number
    if arguments.large:
        Hunt(arguments.target, arguments.seconds, arguments.out, is_large=True).hunt_large()
    elif not arguments.blind and importlib.util.find_spec("atheris") is not None:
        import atheris

        with atheris.instrument_imports(include=["ms_summary_bridge"]):
            hunt = Hunt(arguments.target, arguments.seconds, arguments.out)
        hunt.hunt_guided(atheris)
    else:
        Hunt(arguments.target, arguments.seconds, arguments.out).hunt_blindly()


if __name__ == "__main__":
    main()
