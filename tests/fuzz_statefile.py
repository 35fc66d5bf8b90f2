"""Fuzz the loading of state and model files by coverage, by hand: `python tests/fuzz_statefile.py -max_total_time=600`.

Needs `pip install atheris`. Starts from the sound files of test_mutated_files.py; stops at the first file that is
neither refused with one line nor exactly an original, and leaves it as `crash-...`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["streamnb"]):
    from streamnb.predictor import Predictor
    from streamnb.state import State

from test_mutated_files import ORIGINALS, original

from streamnb.errors import FileFormatError

SOUND = {original(name) for name in ORIGINALS}


def one(data: bytes) -> None:
    """Load the bytes as a state and as a model."""
    for kind in (State, Predictor):
        try:
            loaded = kind.from_bytes(data)
        except FileFormatError as error:
            if "\n" in str(error) or len(str(error)) > 500:
                raise AssertionError(f"not one short line: {error}") from error
        else:
            if loaded.to_bytes() not in SOUND:
                raise AssertionError("another content was loaded")


def main() -> None:
    """Begin with the sound files as the corpus."""
    with tempfile.TemporaryDirectory() as folder:
        for i, data in enumerate(sorted(SOUND)):
            (Path(folder) / str(i)).write_bytes(data)
        atheris.Setup([*sys.argv, folder, "-max_len=65536"], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
