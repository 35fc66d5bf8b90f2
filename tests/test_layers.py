"""The house has one-way stairs: each room imports only from rooms below it, read from the imports themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent / "streamnb"

# Room by room, from the ground up: the modules, the rooms they may import from (their own always), and which of
# NumPy, PyArrow and Polars they may know. Every module stands here; a new one fails the tests until it is placed.
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], set[str]]] = {
    "ground": (("errors", "protocols", "progress", "spans"), (), {"numpy"}),
    # Arithmetic: no Arrow, no files, no columns by name.
    "numbers": (
        (
            "kernels",
            "kernels_jit",
            "measure",
            "densetable",
            "kernels_exact",
            "kernels_exact_jit",
            "exactsums",
            "moments",
            "exactmoments",
            "counts",
            "exactcounts",
            "weights",
            "tokens",
            "exacttokens",
            "tokenscores",
            "likelihoods",
            "scorehistogram",
        ),
        ("ground",),
        {"numpy", "numba"},
    ),
    # Moving rows: no arithmetic, so no NumPy.
    "transport": (
        (
            "sources",
            "sources.batching",
            "sources.deadletters",
            "sources.kafka",
            "sources.messages",
            "sources.dataset",
            "sources.files",
            "sources.footer",
            "sources.opening",
            "sources.parquet",
            "sources.readers",
            "sources.relay",
            "sources.stream",
            "sources.types",
            "engines",
            "engines.stopping",
            "engines.threads",
        ),
        ("ground",),
        {"pyarrow", "polars", "confluent_kafka"},
    ),
    # Named arrays to bytes and back: whatever the arrays mean.
    "files": (("atomic", "arraybytes", "statefile"), ("ground",), {"numpy", "pyarrow"}),
    # What columns and values mean: where Arrow becomes numbers, and numbers become probabilities.
    "meaning": (
        ("vocabulary", "text", "textcolumn", "tokentable", "schema", "kinds", "encode", "tokenfamilies", "families"),
        ("ground", "numbers"),
        {"numpy", "pyarrow"},
    ),
    "model": (
        (
            "sufficient",
            "subtraction",
            "overflow",
            "parts",
            "statecontent",
            "withdrawal",
            "tidy",
            "predictor",
            "explain",
            "topfeatures",
            "state",
            "position",
            "statefolder",
        ),
        ("ground", "numbers", "files", "meaning"),
        {"numpy", "pyarrow"},
    ),
    # Counting as an accumulator, and the engines of other machines, which know states by that shape alone.
    "accumulators": (
        ("accumulator", "adapters", "adapters.beam", "adapters.datafusion"),
        ("ground", "meaning", "model"),
        {"pyarrow"},
    ),
    "fleets": (
        ("engines.spark", "engines.dask", "engines.ray"),
        ("ground", "transport", "meaning", "model", "accumulators"),
        {"pyarrow"},
    ),
    # Where sources, engines and statistics meet.
    "world": (
        (
            *("train", "groups", "score", "evaluation", "report", "describe"),
            *("follow", "followed", "following", "publishing", "rolling", "scoretopic", "signals"),
        ),
        ("ground", "numbers", "transport", "files", "meaning", "model"),
        {"numpy", "pyarrow"},
    ),
    # The same statistics behind scikit-learn's interface; no sources and no engines.
    "estimators": (
        (
            "sklearn",
            "sklearn.base",
            "sklearn.categorical",
            "sklearn.convert",
            "sklearn.discrete",
            "sklearn.gaussian",
            "sklearn.labels",
            "sklearn.scores",
            "sklearn.tables",
            "sklearn.totals",
        ),
        ("ground", "numbers", "files", "meaning", "model"),
        {"numpy", "pyarrow", "scipy", "sklearn"},
    ),
    # What people touch.
    "faces": (
        (
            "",
            "__main__",
            "cli",
            "cliapp",
            "clierrors",
            "clifiles",
            "clifollow",
            "cliscore",
            "clitext",
            "clitrain",
            "options",
            "show",
            "showtext",
            "explaintext",
            "localbroker",
            "demo",
            "demokafka",
            "demotext",
        ),
        ("ground", "numbers", "transport", "files", "meaning", "model", "world"),
        {"numpy", "pyarrow", "polars", "typer", "rich", "confluent_kafka"},
    ),
}
ROOM_OF: dict[str, str] = {module: room for room, (modules, _, _) in ROOMS.items() for module in modules}
LIBRARIES = {
    "numpy",
    "pyarrow",
    "polars",
    "numba",
    "typer",
    "rich",
    "pandas",
    "duckdb",
    "sklearn",
    "scipy",
    "confluent_kafka",
}
# Beside what the room may know: a bar on the terminal is drawn from where progress is counted.
ALSO = {"progress": {"rich"}, "text": {"polars"}}

MODULES = {
    ".".join(path.relative_to(HOUSE).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
    for path in sorted(HOUSE.rglob("*.py"))
}


def room_of(module: str) -> str:
    """Return the room of a module; one that is not placed yet fails whatever asks for it."""
    assert module in ROOM_OF, f"{module} has no place in the table of rooms"
    return ROOM_OF[module]


def imports(module: str, *, types_too: bool = True, late_too: bool = True) -> Iterator[tuple[str, int]]:
    """Yield what a module imports (absolute dotted names), and the line.

    `types_too`: also under TYPE_CHECKING; `late_too`: also inside functions.
    """
    path = MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        only_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if (only_types and not types_too) or (isinstance(node, ast.FunctionDef) and not late_too):
            skipped |= {id(inner) for statement in node.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}, line {node.lineno}: imports are absolute"
            for alias in node.names:
                # `from streamnb import statefile` names a module, `from streamnb.state import State` does not.
                below = f"{node.module}.{alias.name}"
                is_module = below.startswith("streamnb.") and below.removeprefix("streamnb.") in MODULES
                yield below if is_module else str(node.module), node.lineno


def own(module: str, *, types_too: bool = True, late_too: bool = True) -> Iterator[tuple[str, int]]:
    """Yield the modules of the house that a module imports, by their names in the table."""
    for name, line in imports(module, types_too=types_too, late_too=late_too):
        if name == "streamnb" or name.startswith("streamnb."):
            yield name.removeprefix("streamnb").lstrip("."), line


def test_every_module_has_its_place() -> None:
    """Each file stands in the table once, and the table names no file that is gone."""
    placed = [module for modules, _, _ in ROOMS.values() for module in modules]
    assert sorted(placed) == sorted(MODULES)


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "__init__")
def test_imports_go_down(module: str) -> None:
    """A module imports only from its own room and the rooms that its room may know, for its types as well."""
    room = room_of(module)
    allowed = {room, *ROOMS[room][1]}
    wrong = [
        f"line {line}: {module} ({room}) imports {name} ({room_of(name)})"
        for name, line in own(module)
        if room_of(name) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "__init__")
def test_libraries_stay_in_their_rooms(module: str) -> None:
    """Numbers know no Arrow, transport knows no NumPy; only imports for types are free."""
    known = ROOMS[room_of(module)][2] | ALSO.get(module, set())
    used = {name.split(".")[0] for name, _ in imports(module, types_too=False)} & LIBRARIES
    assert used <= known


def test_no_circles() -> None:
    """Within a room, too, imports have an order; only inside a function may one look back."""
    graph = {module: {name for name, _ in own(module, types_too=False, late_too=False)} for module in MODULES}
    TopologicalSorter(graph).prepare()


def test_sources_and_engines_do_not_know_each_other() -> None:
    """A source never starts threads over shards, an engine never opens a file."""
    for module in MODULES:
        if module.startswith("sources"):
            assert not [name for name, _ in own(module) if name.startswith("engines")]
        if module.startswith("engines"):
            assert not [name for name, _ in own(module) if name.startswith("sources")]


def test_engines_know_no_statistics() -> None:
    """What an engine runs comes to it as functions; of the counting it knows the accumulator and names of types."""
    for module in MODULES:
        if module.startswith("engines."):
            known = {name for name, _ in own(module, types_too=False) if not name.startswith("engines")}
            assert known <= {"errors", "protocols", "spans", "accumulator"}, module


def test_columns_become_numbers_in_one_room() -> None:
    """Only `encode` (`text` for strings, `arraybytes` for files) looks into the buffers of an Arrow array."""
    touching = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("buffers", "frombuffer")
    }
    assert touching == {"encode", "text", "arraybytes"}


def test_logarithms_of_probabilities_are_taken_in_one_room() -> None:
    """Of what learns and predicts, only the families take logarithms and turn them back."""
    logarithms = {"log", "log2", "log1p", "logaddexp", "expm1", "exp"}
    taking = {
        module
        for module, path in MODULES.items()
        if room_of(module) in ("numbers", "meaning", "model")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in logarithms
    }
    # A histogram of log odds measures answers, it makes none; `tokens` damps counts, which are no probabilities.
    assert taking <= {"families", "tokenfamilies", "scorehistogram", "tokens"}


def test_help_needs_no_heavy_library() -> None:
    """Importing the command line imports neither NumPy nor PyArrow nor Polars: `--help` answers at once."""
    code = (
        "import sys, streamnb.cli; print(sorted({'numpy', 'pyarrow', 'polars', 'numba', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HOUSE.parent)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "__init__")
def test_files_stay_small(module: str) -> None:
    """No file outgrows 450 lines; split by idea."""
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= 450


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "__init__")
def test_public_names_are_listed(module: str) -> None:
    """Each module says what it offers: it has an `__all__`."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    listed = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    assert listed or module == "__main__"
