"""The command line: every command, what it prints where, its exit codes and its one-line errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import streamnb as snb
from streamnb.cli import app

N_FILES = 6
KINDS = ["--numeric", "x", "--categorical", "site", "--binary", "scent", "--counts", "bee,fly"]
COMMANDS = ["fit", "merge", "subtract", "finish", "predict", "evaluate", "explain", "show", "demo", "follow", "score"]


def flowers(seed: int, rows: int = 200) -> pl.DataFrame:
    """Return rows of two classes, with every kind of column and some missing cells."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, rows)
    frame = pl.DataFrame(
        {
            "y": np.where(y, "tulip", "rose"),
            "x": draw.normal(y * 2.0, 1.0),
            "site": np.where(draw.random(rows) < 0.3 + 0.4 * y, "north", "south"),
            "scent": draw.random(rows) < 0.8 - 0.5 * y,
            "bee": draw.poisson(1.0 + y),
            "fly": draw.poisson(2.0 - y),
            "w": draw.integers(1, 3, rows) / 2,
            "class": y,
        }
    )
    return frame.with_columns(pl.when(pl.col.bee == 0).then(None).otherwise(pl.col.x).alias("x"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six Parquet files."""
    folder = tmp_path_factory.mktemp("data")
    for i in range(N_FILES):
        flowers(i).write_parquet(folder / f"part-{i}.parquet")
    return folder


@pytest.fixture(scope="module")
def files(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `state.snb` and `model.snb` of the data."""
    folder = tmp_path_factory.mktemp("files")
    run("fit", data, "--label", "y", *KINDS, "-o", folder / "state.snb")
    run("finish", folder / "state.snb", "-o", folder / "model.snb")
    return folder


def run(*args: object, code: int = 0, env: dict[str, str] | None = None) -> Any:
    """Run the command line in this process and hold it to an exit code."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], env=env)
    assert result.exit_code == code, result.output
    if code:
        assert "Traceback" not in result.output
    return result


def error_of(*args: object) -> str:
    """Return the error that a command ends with: one line on stderr, and nothing on stdout."""
    result = run(*args, code=1)
    assert result.stdout == ""
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def usage_of(*args: object) -> str:
    """Return the message of wrong usage, on one line."""
    result = run(*args, code=2)
    assert result.stdout == ""
    return " ".join(result.stderr.split())


def process(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m streamnb` as a person does."""
    command = [sys.executable, "-m", "streamnb", *map(str, args)]
    environment = os.environ | {"PYTHONPATH": str(Path(snb.__file__).parents[1])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, **options)


# --- help ---


def test_the_command_starts_without_the_heavy_imports() -> None:
    """Asking for help imports neither NumPy nor Arrow nor Polars nor Rich, so that it answers at once."""
    script = "import sys, streamnb.cli; print([m for m in ('numpy', 'pyarrow', 'polars', 'rich') if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(Path(snb.__file__).parents[1])}
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert found.stdout == "[]\n"


def test_help_lists_every_command() -> None:
    """`--help` names all commands, each with a whole sentence."""
    shown = run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +[A-Z].*\.$", shown, re.MULTILINE), command
    assert "..." not in shown.partition("Commands:")[2]
    assert sorted(COMMANDS) == sorted(each.name or each.callback.__name__ for each in app.registered_commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(command: str) -> None:
    """Each command's help ends with an example on a line of its own."""
    shown = run(command, "--help").stdout
    assert re.search(rf"Examples?:\n( .*\n)*  +streamnb {command} ", shown)


def test_version() -> None:
    """`--version` prints name and version."""
    assert run("--version").stdout == f"streamnb {snb.__version__}\n"


def test_wrong_usage_is_exit_code_2() -> None:
    """Unknown commands and options, and missing ones, end with 2 and a word on usage."""
    assert "No such command 'fti'" in usage_of("fti")
    assert "No such option: --lable" in usage_of("fit", "x", "--lable", "y", "-o", "a")
    assert "Missing option '--output'" in usage_of("fit", "x", "--label", "y")


# --- fit ---


def test_fit_equals_the_library(data: Path, tmp_path: Path) -> None:
    """`fit` writes the bytes that the library gives, says so on stderr and prints nothing."""
    result = run("fit", data, "--label", "y", *KINDS, "-o", tmp_path / "a.snb", "--workers", "2")
    assert result.stdout == ""
    assert result.stderr == f"1,200 rows, 2 classes, 5 features -> {tmp_path / 'a.snb'}\n"
    schema = snb.Schema("y", numeric=["x"], categorical=["site"], binary=["scent"], counts=["bee", "fly"])
    assert (tmp_path / "a.snb").read_bytes() == snb.fit(data, schema=schema).to_bytes()


def test_fit_infers_and_says_what(data: Path, tmp_path: Path) -> None:
    """Without kinds they come from the types; stderr says what was taken as what."""
    out = tmp_path / "a.snb"
    result = run("fit", data / "part-0.parquet", "--label", "y", "--exclude", "class", "--weight", "w", "-o", out)
    assert result.stderr.splitlines()[:3] == [
        "taken as numeric: x, bee, fly",
        "taken as categorical: site",
        "taken as binary: scent",
    ]
    assert snb.State.load(out).schema.weight == "w"
    run("fit", data, "--label", "y", "--exclude", "class,w", "--counts", "bee", "--counts", "fly", "--infer", "-o", out)
    assert snb.State.load(out).schema == snb.Schema(
        "y", numeric=["x"], categorical=["site"], binary=["scent"], counts=["bee", "fly"]
    )


def test_fit_takes_a_schema_file(data: Path, tmp_path: Path) -> None:
    """`--schema` gives everything at once, as JSON."""
    schema = snb.Schema("class", numeric=["x"], binary=["bee"], binarize=1.0)
    (tmp_path / "schema.json").write_text(schema.to_json())
    run("fit", data, "--schema", tmp_path / "schema.json", "-o", tmp_path / "a.snb")
    assert snb.State.load(tmp_path / "a.snb").schema == schema
    message = usage_of("fit", data, "--schema", "s.json", "--label", "y", "-o", tmp_path / "a.snb")
    assert "Invalid value for --schema: it holds the label and all columns; give it alone" in message


def test_fit_options_reach_the_schema(tmp_path: Path) -> None:
    """Thresholds, infinities and names with commas arrive as they are meant."""
    frame = pl.DataFrame({"y": [1, 2], "a,b": [0.2, float("inf")], "c": [0.2, 0.8]})
    frame.write_parquet(tmp_path / "d.parquet")
    out = tmp_path / "a.snb"
    given = ["fit", tmp_path / "d.parquet", "--label", "y", "--numeric", '"a,b"', "--binary", "c", "-o", out]
    run(*given, "--binarize", "0.5", "--infinite", "missing")
    state = snb.State.load(out)
    assert state.schema == snb.Schema("y", numeric=["a,b"], binary=["c"], binarize=0.5, infinite="missing")
    assert state.missing()["a,b"] == {1: 0, 2: 1}
    run(*given, "--binarize", "c=0.5", "--infinite", "missing")
    assert snb.State.load(out).schema.binarize == {"c": 0.5}
    assert "Expected a finite number, got inf" in error_of(*given, "--binarize", "0.5")
    assert "expected one number or name=number" in usage_of(*given, "--binarize", "1,2")


def test_fit_refuses_options_that_do_not_go_together(data: Path, tmp_path: Path) -> None:
    """Contradictions are wrong usage, said before any work."""
    out = ["-o", tmp_path / "a.snb"]
    assert "expected --label or --schema, got neither" in usage_of("fit", data, *out)
    assert "it belongs to kinds that come from types" in usage_of(
        "fit", data, "--label", "y", "--numeric", "x", "--exclude", "w", *out
    )
    assert "it goes on from a --checkpoint" in usage_of("fit", data, "--label", "y", "--resume", *out)


def test_fit_errors_are_one_line(data: Path, tmp_path: Path) -> None:
    """A column, a file or a folder that is not there is one sentence."""
    out = ["-o", tmp_path / "a.snb"]
    assert error_of("fit", data, "--label", "yy", "--numeric", "x", *out).startswith("Expected a column 'yy', got none")
    assert "nothing.parquet" in error_of("fit", tmp_path / "nothing.parquet", "--label", "y", *out)
    where = tmp_path / "no" / "a.snb"
    assert error_of("fit", data, "--label", "y", "-o", where) == (
        f"Cannot write {where}: the folder {where.parent} does not exist"
    )
    part = data / "part-0.parquet"
    assert error_of("fit", part, "--label", "y", "-o", part).startswith("Expected an output apart from the input")
    assert "it is a folder" in error_of("fit", part, "--label", "y", "-o", tmp_path)
    assert not (tmp_path / "a.snb").exists()


def test_damaged_files_can_be_skipped(data: Path, tmp_path: Path) -> None:
    """`--on-error skip` leaves a damaged file out, says so on one line, and exits with 0."""
    (tmp_path / "good.parquet").write_bytes((data / "part-0.parquet").read_bytes())
    (tmp_path / "bad.parquet").write_bytes((data / "part-1.parquet").read_bytes()[:-100])
    given = ["fit", tmp_path / "*.parquet", "--label", "y", *KINDS, "-o", tmp_path / "a.snb"]
    assert "bad.parquet" in error_of(*given)
    result = run(*given, "--on-error", "skip")
    skipped = [line for line in result.stderr.splitlines() if line.startswith("skipped: ")]
    assert len(skipped) == 1
    assert "bad.parquet" in skipped[0]
    assert snb.State.load(tmp_path / "a.snb").n_rows == 200


# --- merge and finish ---


def test_files_apart_and_merged_equal_all_at_once(data: Path, files: Path, tmp_path: Path) -> None:
    """States of single files add up to the state of all; a file counted twice counts once."""
    parts = [tmp_path / f"{i}.snb" for i in range(N_FILES)]
    for i, part in enumerate(parts):
        run("fit", data / f"part-{i}.parquet", "--label", "y", *KINDS, "-o", part)
    result = run("merge", *parts, parts[0], "-o", tmp_path / "all.snb")
    assert result.stdout == ""
    assert result.stderr.startswith("1,200 rows, 2 classes, 5 features -> ")
    merged, whole = snb.State.load(tmp_path / "all.snb"), snb.State.load(files / "state.snb")
    assert merged.digest() == whole.digest()


def test_merge_names_the_state_that_does_not_fit(data: Path, files: Path, tmp_path: Path) -> None:
    """States that count different things do not merge, and the message says which file and what."""
    other = tmp_path / "other.snb"
    run("fit", data, "--label", "class", "--numeric", "x", "-o", other)
    message = error_of("merge", files / "state.snb", other, "-o", tmp_path / "all.snb")
    assert message == f"Expected states with label 'y', got label 'class' - {other}"
    assert "holds a model, not a state" in error_of("merge", files / "model.snb", "-o", tmp_path / "all.snb")


def test_finish_passes_every_option(files: Path, tmp_path: Path) -> None:
    """What `finish` is given arrives in the families and the prior."""
    out = tmp_path / "m.snb"
    run("finish", files / "state.snb", "-o", out, "--alpha", "0.5", "--epsilon", "0.1", "--prior", "uniform")
    families = snb.Predictor.load(out).families
    assert {block: family.get("alpha") for block, family in families.items()} == {
        "numeric": None,
        "categorical": 0.5,
        "binary": 0.5,
        "counts": 0.5,
    }
    assert families["numeric"]["epsilon"] == 0.1
    given = ["--categorical-alpha", "2", "--binary-alpha", "scent=3", "--counts-alpha", "1,4", "--complement", "--norm"]
    given += ["--var-smoothing", "1e-3", "--unseen", "smooth", "--min-categories", "5", "--prior", "rose=0.7,tulip=0.3"]
    result = run("finish", files / "state.snb", "-o", out, *given)
    assert result.stdout == ""
    model = snb.Predictor.load(out)
    assert model == snb.State.load(files / "state.snb").finish(
        numeric=snb.Gaussian(var_smoothing=1e-3),
        categorical=snb.Categorical(2.0, min_categories=5, unseen="smooth"),
        binary=snb.Bernoulli({"scent": 3.0}),
        counts=snb.Complement([1.0, 4.0], norm=True),
        class_prior={"rose": 0.7, "tulip": 0.3},
    )
    run("finish", files / "state.snb", "-o", out, "--prior-alpha", "10")
    assert np.exp(snb.Predictor.load(out).class_log_prior).sum() == pytest.approx(1.0)


def test_prior_labels_have_the_labels_type(data: Path, tmp_path: Path) -> None:
    """Labels in `--prior` are read in the type of the label column, and refused if they cannot be."""
    run("fit", data, "--label", "class", "--numeric", "x", "-o", tmp_path / "s.snb")
    given = ["finish", tmp_path / "s.snb", "-o", tmp_path / "m.snb", "--prior"]
    run(*given, "0=0.9,1=0.1")
    assert np.exp(snb.Predictor.load(tmp_path / "m.snb").class_log_prior) == pytest.approx([0.9, 0.1])
    assert error_of(*given, "zero=1") == "Expected labels of type int64 in --prior, got 'zero'"
    assert error_of(*given, "0=1") == "Expected a class_prior for each class, got none for [1]"
    assert "sum to 1" in error_of(*given, "0=0.9,1=0.9")
    assert "expected empirical, uniform or probabilities" in usage_of(*given, "even")
    assert "expected a number, got 'x'" in usage_of(*given, "0=x")
    assert "got '0' twice" in usage_of(*given, "0=0.5,0=0.5")


def test_finish_refuses_what_makes_no_sense(data: Path, files: Path, tmp_path: Path) -> None:
    """Options that contradict each other, a negative alpha, and overwriting the state by its model are refused."""
    state, out = files / "state.snb", ["-o", tmp_path / "m.snb"]
    assert "it belongs to --complement" in usage_of("finish", state, *out, "--norm")
    assert "give one" in usage_of("finish", state, *out, "--epsilon", "1", "--var-smoothing", "1")
    assert "expected a number, got 'much'" in usage_of("finish", state, *out, "--counts-alpha", "much")
    assert error_of("finish", state, *out, "--alpha", "-1") == "Expected alpha to be at least 0, got -1.0"
    assert "Expected an output apart from the input" in error_of("finish", state, "-o", state)
    run("fit", data, "--label", "y", "--numeric", "x", "-o", tmp_path / "s.snb")
    notes = run("finish", tmp_path / "s.snb", *out, "--complement", "--min-categories", "3").stderr.splitlines()
    assert notes[:2] == [
        "note: --min-categories changes nothing, the state has no categorical columns",
        "note: --complement changes nothing, the state has no counts columns",
    ]


# --- predict and evaluate ---


def test_predict_to_parquet_csv_and_stdout(data: Path, files: Path, tmp_path: Path) -> None:
    """The three outputs hold the same rows: the kept columns, the prediction, and the probabilities."""
    given = ["predict", files / "model.snb", data, "--proba", "--keep", "y,site"]
    result = run(*given, "-o", tmp_path / "a.parquet")
    assert (result.stdout, result.stderr) == ("", f"1,200 rows -> {tmp_path / 'a.parquet'}\n")
    run(*given, "-o", tmp_path / "a.csv")
    printed = run(*given, "-o", "-", "--workers", "2")
    assert printed.stderr == ""
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert table.columns == ["y", "site", "prediction", "proba_rose", "proba_tulip"]
    assert printed.stdout == (tmp_path / "a.csv").read_text()
    assert pl.read_csv(printed.stdout.encode()).equals(table)
    model = snb.Predictor.load(files / "model.snb")
    assert table["prediction"].to_list() == model.predict(pl.read_parquet(data)).to_pylist()


def test_a_state_serves_as_its_model(data: Path, files: Path) -> None:
    """A state file is finished with the defaults where a model is asked for."""
    part = data / "part-0.parquet"
    for command, options in (("predict", ["-o", "-"]), ("evaluate", ["--json"])):
        state, model = (run(command, files / f"{kind}.snb", part, *options) for kind in ("state", "model"))
        assert state.stdout == model.stdout


def test_predict_keeps_all_columns(data: Path, files: Path, tmp_path: Path) -> None:
    """`--keep-all` copies every column before the prediction."""
    run("predict", files / "model.snb", data, "-o", tmp_path / "a.parquet", "--keep-all")
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert table.drop("prediction").equals(pl.read_parquet(data))
    first = run("predict", files / "model.snb", data, "-o", "-", "--keep-all").stdout.splitlines()[0]
    assert first == ",".join(f'"{name}"' for name in table.columns)


def test_predict_of_no_rows_is_a_header(data: Path, files: Path, tmp_path: Path) -> None:
    """Without rows the output has its columns all the same; string columns of any layout go into CSV."""
    part = pl.read_parquet(data / "part-0.parquet").with_columns(pl.col.site.cast(pl.Categorical))
    given = ["predict", files / "model.snb", tmp_path / "d.parquet", "--keep", "site"]
    for rows in (0, 2):
        part.head(rows).write_parquet(tmp_path / "d.parquet")
        shown = run(*given, "-o", "-").stdout
        assert shown.splitlines()[0] == '"site","prediction"'
        assert len(shown.splitlines()) == rows + 1
        run(*given, "-o", tmp_path / "a.csv")
        assert (tmp_path / "a.csv").read_text() == shown


def test_predict_errors_are_one_line(data: Path, files: Path, tmp_path: Path) -> None:
    """Absent columns, doubled names and an output among the inputs are refused, on stdout as in files."""
    model, part = files / "model.snb", data / "part-0.parquet"
    for out in ("-", tmp_path / "a.parquet"):
        given = ["predict", model, part, "-o", out]
        assert error_of(*given, "--keep", "zzz").startswith("Expected a column 'zzz' to keep, got none of that name")
    frame = pl.read_parquet(part)
    frame.drop("x").write_parquet(tmp_path / "b.parquet")
    frame.with_columns(prediction=1).write_parquet(tmp_path / "c.parquet")
    for out in ("-", tmp_path / "a.parquet"):
        assert error_of("predict", model, tmp_path / "b.parquet", "-o", out).startswith("Expected a column 'x'")
        doubled = error_of("predict", model, tmp_path / "c.parquet", "-o", out, "--keep-all")
        assert doubled == "Expected kept columns beside the output's own, got 'prediction' as both"
    assert "apart from the input" in error_of("predict", model, part, "-o", part)
    assert "apart from the input" in error_of("predict", model, part, "-o", model)
    assert "give one of --keep and --keep-all" in usage_of(
        "predict", model, part, "-o", "-", "--keep", "y", "--keep-all"
    )
    assert not (tmp_path / "a.parquet").exists()


def test_evaluate_for_people_and_programs(data: Path, files: Path) -> None:
    """The report is text, or JSON with the same numbers as the library's."""
    report = snb.evaluate(snb.Predictor.load(files / "model.snb"), data)
    result = run("evaluate", files / "model.snb", data)
    assert (result.stdout, result.stderr) == (f"{report}\n", "")
    assert json.loads(run("evaluate", files / "model.snb", data, "--json").stdout) == report.to_dict()
    assert report.accuracy > 0.8


# --- text ---


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    """Two files of short documents."""
    for i, words in enumerate(["Free money now|the meeting at noon", "free Café|money for the meeting|free money"]):
        labels = ["spam", "ham", "spam"][: words.count("|") + 1]
        pl.DataFrame({"y": labels, "body": words.split("|")}).write_parquet(tmp_path / f"mails-{i}.parquet")
    return tmp_path / "mails-*.parquet"


def test_fit_counts_text(mails: Path, tmp_path: Path) -> None:
    """`--text` and its options make the schema that the library would be given."""
    out = tmp_path / "a.snb"
    given = ["fit", mails, "--label", "y", "--text", "body", "-o", out]
    run(*given)
    assert snb.State.load(out).schema == snb.Schema("y", text=["body"])
    (tmp_path / "stop.txt").write_text("the\n\n at \n")
    run(*given, "--text-tokens", "whitespace", "--ngrams", "1,2", "--stop-words", tmp_path / "stop.txt", "--keep-case")
    options = {"tokens": "whitespace", "ngrams": (1, 2), "stop_words": ["at", "the"], "lowercase": False}
    assert snb.State.load(out).schema == snb.Schema("y", text=[snb.Text("body", **options)])
    run(*given, "--ngrams", "2", "--strip-accents", "--buckets", "64", "--normalize", "l2", "--sublinear")
    options = {"ngrams": (2, 2), "strip_accents": True, "buckets": 64, "normalize": "l2", "sublinear": True}
    assert snb.State.load(out).schema == snb.Schema("y", text=[snb.Text("body", **options)])
    assert "distinct tokens" in run("show", out).stdout


def test_text_options_need_text(mails: Path, tmp_path: Path) -> None:
    """An option of text without a column, and n-grams that are none, are wrong usage."""
    given = ["fit", mails, "--label", "y", "-o", tmp_path / "a.snb"]
    assert "Invalid value for --buckets: it belongs to --text" in usage_of(*given, "--buckets", "8")
    assert "Invalid value for --keep-case: it belongs to --text" in usage_of(*given, "--keep-case")
    assert "Invalid value for --text-tokens: it belongs to --text" in usage_of(*given, "--text-tokens", "chars")
    message = "Invalid value for --ngrams: expected one number or two, like 1,2, got '1-2'"
    assert message in usage_of(*given, "--text", "body", "--ngrams", "1-2")
    assert "Expected ngrams= to be the fewest and the most" in error_of(*given, "--text", "body", "--ngrams", "3,2")


@pytest.mark.parametrize(
    ("options", "family"),
    [
        ([], snb.Multinomial()),
        (["--alpha", "0.5"], snb.Multinomial(0.5)),
        (["--text-family", "complement", "--norm", "--idf"], snb.Complement(norm=True, idf=True)),
        (["--text-family", "bernoulli", "--text-alpha", "0.1", "--alpha", "2"], snb.Bernoulli(0.1)),
        (["--min-count", "2", "--max-tokens", "3"], snb.Multinomial(min_count=2.0, max_tokens=3)),
    ],
)
def test_finish_chooses_the_family_of_text(mails: Path, tmp_path: Path, options: list[str], family: Any) -> None:
    """Family, smoothing, idf and pruning of text reach the model."""
    run("fit", mails, "--label", "y", "--text", "body", "--document-frequency", "-o", tmp_path / "a.snb")
    run("finish", tmp_path / "a.snb", "-o", tmp_path / "m.snb", *options)
    state = snb.State.load(tmp_path / "a.snb")
    assert snb.Predictor.load(tmp_path / "m.snb") == state.finish(text=family)
    shown = run("explain", tmp_path / "m.snb", mails, "--rows", "1").stdout
    assert re.search(r"^body +money +[+-]\d", shown, re.MULTILINE)


def test_finish_says_what_changes_nothing_without_text(files: Path, tmp_path: Path) -> None:
    """Options of text are noted where a state has none, and `--norm` needs a complement."""
    given = ["finish", files / "state.snb", "-o", tmp_path / "m.snb"]
    assert "note: --min-count changes nothing, the state has no text columns" in run(*given, "--min-count", "2").stderr
    assert "it belongs to --complement or --text-family complement" in usage_of(*given, "--norm")


# --- explain ---


def test_explain_equals_the_library(data: Path, files: Path) -> None:
    """`--json` gives each row's answer, its label, and the contributions of the library, which add up."""
    part = pl.read_parquet(data / "part-0.parquet")
    model = snb.Predictor.load(files / "model.snb")
    result = run("explain", files / "model.snb", data / "part-0.parquet", "--rows", "3", "--json")
    assert result.stderr == ""
    rows = json.loads(result.stdout)
    table = model.explain(part.head(3)).to_pylist()
    joint = model.predict_joint_log_proba(part.head(3))
    assert [row["row"] for row in rows] == [0, 1, 2]
    assert [row["prediction"] for row in rows] == model.predict(part.head(3)).to_pylist()
    assert [row["probability"] for row in rows] == model.predict_proba(part.head(3)).max(axis=1).tolist()
    assert [row["label"] for row in rows] == part["y"].head(3).to_list()
    for row, scores in zip(rows, joint, strict=True):
        prior, *cells = [entry for entry in table if entry["row"] == row["row"]]
        assert (row["for"], row["against"], row["prior"]) == (prior["for"], prior["against"], prior["contribution"])
        keys = ("feature", "block", "value", "contribution")
        assert row["contributions"] == [{key: cell[key] for key in keys} for cell in cells]
        assert row["others"] == {"number": 0, "contribution": 0.0}
        assert row["log_odds"] == pytest.approx(scores.max() - scores.min(), rel=1e-9)


def test_explain_for_a_person(data: Path, files: Path) -> None:
    """The text names row, answer, label and both classes; what `--top` leaves out is added up."""
    given = ["explain", files / "model.snb", data / "part-0.parquet"]
    shown = run(*given, "--rows", "2", "--label", "rose", "--against", "tulip", "--top", "2").stdout
    first, second = re.findall(r"^row .*\n\n(?:.+\n)+", shown, re.MULTILINE)
    assert re.match(r"row 0: \w+, probability 0\.\d{4}, label \w+; rose against tulip, log odds [+-]", first)
    assert second.splitlines()[2].split() == ["feature", "value", "log", "odds"]
    assert "(3 others)" in first
    assert re.search(r"^\(prior\) +[+-]0\.\d{3}$", second, re.MULTILINE)
    odds = [float(line.split()[-1]) for line in second.splitlines()[3:]]
    assert sum(odds) == pytest.approx(float(second.splitlines()[0].split()[-1]), abs=0.003)
    assert "(others)" not in run(*given).stdout
    assert run(*given).stdout.count("probability") == 5


def test_explain_takes_states_and_files_of_any_length(data: Path, files: Path, tmp_path: Path) -> None:
    """A state serves as well; rows go on from file to file; a file without the label is explained as well."""
    many = json.loads(run("explain", files / "state.snb", data, "--rows", "250", "--json").stdout)
    assert [row["row"] for row in many] == list(range(250))
    assert many[210]["label"] == pl.read_parquet(data / "part-1.parquet")["y"][10]
    part = pl.read_parquet(data / "part-0.parquet").drop("y")
    part.head(3).write_parquet(tmp_path / "new.parquet")
    few = json.loads(run("explain", files / "model.snb", tmp_path / "new.parquet", "--json").stdout)
    assert [("label" in row, row["for"]) for row in few] == [(False, row["for"]) for row in many[:3]]


def test_explain_finds_labels_of_any_type(data: Path, tmp_path: Path) -> None:
    """Labels are given as they are shown; others are refused by their type or with the classes that there are."""
    run("fit", data, "--label", "class", "--numeric", "x", "-o", tmp_path / "a.snb")
    given = ["explain", tmp_path / "a.snb", data, "--rows", "1", "--json"]
    (row,) = json.loads(run(*given, "--label", "1").stdout)
    assert (row["for"], row["against"]) == (1, 0)
    assert error_of(*given, "--against", "one") == "Expected labels of type int64 in --against, got 'one'"
    message = "Expected a class of the model for label= (one of 0, 1), got 2"
    assert error_of(*given, "--label", "2") == message


def test_explain_says_where_a_bad_value_stands(files: Path, tmp_path: Path) -> None:
    """An infinite number is an error that names column, row and file."""
    flowers(0, 5).with_columns(x=pl.lit(float("inf"))).write_parquet(tmp_path / "bad.parquet")
    message = error_of("explain", files / "model.snb", tmp_path / "bad.parquet")
    assert message.startswith("Expected a finite number, got inf")
    assert "bad.parquet" in message


# --- show ---


def test_show_states_and_models(files: Path) -> None:
    """`show` reads both kinds of file, as text and as JSON."""
    assert run("show", files / "state.snb").stdout.startswith("A state: 1,200 rows, 2 classes, 5 feature columns, 6 sh")
    assert run("show", files / "model.snb").stdout.startswith("A predictor: 2 classes, 5 feature columns\n")
    found = json.loads(run("show", files / "state.snb", "--json", "--top", "2").stdout)
    assert (found["kind"], found["rows"], len(found["telling"])) == ("state", 1200, 2)
    assert json.loads(run("show", files / "model.snb", "--json").stdout)["kind"] == "predictor"


def test_show_says_what_speaks_for_a_class(files: Path) -> None:
    """Of a model `show` names the features that speak most for each class, as many as `--top` says."""
    model = snb.Predictor.load(files / "model.snb")
    found = json.loads(run("show", files / "model.snb", "--json", "--top", "2").stdout)["top_features"]
    assert sorted(each["class"] for each in found) == ["rose", "tulip"]
    for each in found:
        assert each["features"] == model.top_features(each["class"], 2).to_pylist()
    shown = run("show", files / "model.snb", "--top", "3").stdout
    assert "what speaks most for a class" in shown
    assert re.search(r"^rose +x +-?0\.\d+, below +tulip +\d\.\d{3}$", shown, re.MULTILINE)
    assert "what speaks most" not in run("show", files / "model.snb", "--top", "0").stdout


def test_show_refuses_other_files(data: Path, files: Path, tmp_path: Path) -> None:
    """Files that are absent, damaged or of another kind are refused in one sentence."""
    assert error_of("show", tmp_path / "no.snb") == f"There is no file {tmp_path / 'no.snb'}"
    assert "it is a Parquet file" in error_of("show", data / "part-0.parquet")
    (tmp_path / "cut.snb").write_bytes((files / "state.snb").read_bytes()[:-50])
    assert "cut.snb" in error_of("show", tmp_path / "cut.snb")


# --- demo ---


def test_demo_tells_each_step(tmp_path: Path) -> None:
    """The demo does the whole job, and with `--dir` leaves its files there."""
    result = run("demo", "--rows", "3000", "--dir", tmp_path / "new", "--workers", "1")
    for said in ("1. Making 3,000", "rows/s", "the same counts in all cells", "accuracy 0.8", "6. What tells most"):
        assert said in result.stdout
    assert result.stderr == ""
    kept = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert kept == ["holdout.parquet", "model.snb", "scored.parquet", "state.snb", "visits-000.parquet"]


def test_demo_of_documents(tmp_path: Path) -> None:
    """`--text` makes documents, counts them alike in any order, and explains one of them."""
    result = run("demo", "--text", "--rows", "3000", "--dir", tmp_path / "new", "--workers", "1")
    assert re.findall(r"^\d\.", result.stdout, re.MULTILINE) == [f"{i}." for i in range(1, 7)]
    assert "the same words and the same counts, whatever the order" in result.stdout
    assert float(re.search(r"complement +accuracy (\d\.\d{4})", result.stdout)[1]) > 0.7
    odds = float(re.search(r"log odds ([+-]\d+\.\d\d)", result.stdout)[1])
    parts = re.findall(r"^ +([+-]\d+\.\d\d)  ", result.stdout.partition("6. Why")[2], re.MULTILINE)
    assert sum(map(float, parts)) == pytest.approx(odds, abs=0.05)
    state = snb.State.load(tmp_path / "new" / "state.snb")
    assert state.n_rows == 3000
    assert run("demo", "--text", "--rows", "3000", "--workers", "1").stdout.count("accuracy") == 5


def test_demo_cleans_up() -> None:
    """Without `--dir` nothing is left behind."""
    folder = re.search(r"in (\S+streamnb-demo-\S+)", run("demo", "--rows", "1000").stdout)
    assert folder is not None
    assert not Path(folder[1]).exists()


# --- errors ---


def test_unexpected_errors_are_one_line_too(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is one line with the kind of error; `--debug`, anywhere, or STREAMNB_DEBUG=1 show the traceback."""

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("spam")

    monkeypatch.setattr("streamnb.statefile.read", broken)
    assert error_of("show", files / "state.snb") == "KeyError: 'spam' (--debug shows the traceback)"
    for args, env in (
        (["--debug", "show", "a"], {}),
        (["show", "a", "--debug"], {}),
        (["show", "a"], {"STREAMNB_DEBUG": "1"}),
    ):
        result = CliRunner().invoke(app, args, env=env)
        assert result.exit_code == 1
        assert isinstance(result.exception, KeyError)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(13, "Permission denied", "a.snb"), "Permission denied: a.snb"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ValueError("two\n  lines \x1b[31m"), "two lines \\x1b[31m"),
        (MemoryError(), "MemoryError:  (--debug shows the traceback)"),
    ],
    ids=str,
)
def test_errors_of_the_system_read_well(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """System errors name the file without an error number; line breaks and control codes never reach a terminal."""

    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("streamnb.statefile.read", broken)
    assert error_of("show", "a.snb") == " ".join(line.split())


def test_a_huge_message_is_cut(data: Path, tmp_path: Path) -> None:
    """A message that quotes too much is cut to a readable length, and says so."""
    (tmp_path / "schema.json").write_text(json.dumps({"label": "y", "x" * 5000: []}))
    message = error_of("fit", data, "--schema", tmp_path / "schema.json", "-o", tmp_path / "a.snb")
    assert message.startswith("Expected the keys of a schema, got 'xxx")
    assert message.endswith(" ... (cut; --debug shows all of it)")
    assert len(message) < 700


def test_other_warnings_are_one_line(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning of a library is one line on stderr, and the result stays whole."""
    read = snb.statefile.read

    def warned(*args: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old\nways", FutureWarning, stacklevel=1)
        return read(*args, **options)

    monkeypatch.setattr("streamnb.statefile.read", warned)
    result = run("show", files / "state.snb", "--json")
    assert result.stderr == "warning: old ways\n"
    assert json.loads(result.stdout)["rows"] == 1200


def test_interrupt_without_a_checkpoint(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is one line, and promises nothing that is not there."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamnb.train.fit", interrupted)
    given = ["fit", data, "--label", "y", "--numeric", "x", "-o", tmp_path / "a.snb"]
    assert error_of(*given) == "interrupted"
    assert error_of(*given, "--checkpoint", tmp_path / "run.snb") == "interrupted"


# --- as real processes ---


SLOW = """
import time
import streamnb.train as train
from streamnb.cli import main
train.CHECKPOINT_SECONDS = 0.0
count = train.accumulate
def slow(*arguments):
    time.sleep(0.15)
    return count(*arguments)
train.accumulate = slow
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_a_stopped_run_resumes_to_the_same_bytes(stop: signal.Signals, data: Path, files: Path, tmp_path: Path) -> None:
    """A fit that is stopped in the middle goes on with --resume, and ends with the bytes of an undisturbed one."""
    checkpoint, out = tmp_path / "run.snb", tmp_path / "a.snb"
    given = ["fit", str(data), "--label", "y", *KINDS, "-o", str(out), "--checkpoint", str(checkpoint)]
    environment = os.environ | {"PYTHONPATH": str(Path(snb.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *given, "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as running:
        deadline = time.monotonic() + 30
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        running.send_signal(stop)
        stdout, stderr = running.communicate(timeout=30)
    assert stdout == ""
    assert not out.exists()
    if stop == signal.SIGINT:
        assert running.returncode == 1
        assert stderr == (
            f"error: interrupted; {checkpoint} holds what was counted, the same line with --resume goes on from it\n"
        )
    held = snb.State.load(checkpoint)
    assert 0 < held.n_rows < 200 * N_FILES
    assert "Expected no checkpoint yet" in error_of(*given)
    run(*given, "--resume")
    assert out.read_bytes() == (files / "state.snb").read_bytes()
    assert checkpoint.read_bytes() == out.read_bytes()


def test_results_and_notes_of_a_real_process(data: Path, files: Path, tmp_path: Path) -> None:
    """Without a terminal no control code is printed, notes leave stdout alone, and errors have no traceback."""
    fitted = process("fit", data, "--label", "y", *KINDS, "-o", tmp_path / "a.snb")
    assert (fitted.returncode, fitted.stdout) == (0, "")
    assert (tmp_path / "a.snb").read_bytes() == (files / "state.snb").read_bytes()
    failed = process("show", tmp_path / "no.snb")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == f"error: There is no file {tmp_path / 'no.snb'}\n"
    assert "\x1b" not in fitted.stderr + failed.stderr


@pytest.mark.skipif(os.name == "nt", reason="no head")
def test_a_closed_pipe_is_quiet(files: Path, tmp_path: Path) -> None:
    """A reader that has enough closes the pipe, and nothing is said about it."""
    flowers(0, 100_000).write_parquet(tmp_path / "many.parquet")
    python = f"{sys.executable} -m streamnb"
    line = f"{python} predict {files / 'model.snb'} {tmp_path / 'many.parquet'} -o - --keep-all | head -n 1"
    environment = os.environ | {"PYTHONPATH": str(Path(snb.__file__).parents[1])}
    found = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert found.stdout.startswith('"y","x","site"')
    assert found.stderr == ""


def test_an_output_among_the_inputs_is_refused(data: Path, tmp_path: Path) -> None:
    """No command writes onto a file that it reads, whether the file, its folder or a glob was named."""
    victim = data / "part-0.parquet"
    before = victim.read_bytes()
    for source in (data, victim, f"{data}/*.parquet"):
        error = error_of("fit", source, "--label", "y", "--numeric", "x", "-o", victim)
        assert error.startswith("Expected an output apart from the input")
    assert victim.read_bytes() == before
    assert error_of("fit", data, "--label", "y", "-o", "-").startswith("Expected the name of a file to write, got -")
    assert error_of("fit", "", "--label", "y", "-o", tmp_path / "a.snb") == "Expected a path, got an empty one"


# --- subtract ---------------------------------------------------------------------------------------------------------


def test_subtract_gives_the_state_of_the_rest(data: Path, tmp_path: Path) -> None:
    """With --exact, all files minus one is what the others give, and show prints the same digest for both."""
    files = [str(path) for path in sorted(data.glob("*.parquet"))]
    for name, chosen in {"all": files, "one": files[2:3], "rest": [*files[:2], *files[3:]]}.items():
        run("fit", *chosen, "--label", "y", *KINDS, "--weight", "w", "--exact", "-o", str(tmp_path / f"{name}.snb"))
    result = run("subtract", tmp_path / "all.snb", tmp_path / "one.snb", "-o", tmp_path / "left.snb")
    assert result.stderr.startswith("1,000 rows, 2 classes")
    left, rest = snb.State.load(tmp_path / "left.snb"), snb.State.load(tmp_path / "rest.snb")
    assert left == rest
    assert left.ledger == rest.ledger
    shown = [run("show", str(tmp_path / f"{name}.snb")).stdout for name in ("left", "rest")]
    assert shown[0] == shown[1]
    assert f"exact; the digest of its rows is {rest.digest()}" in shown[0]
    described = json.loads(run("show", str(tmp_path / "left.snb"), "--json").stdout)
    assert (described["exact"], described["digest"]) == (True, rest.digest())


def test_subtract_refuses_with_one_line(files: Path, data: Path, tmp_path: Path) -> None:
    """Rounded moments cannot be taken apart: one line with the ways out, and no file."""
    one, output = tmp_path / "one.snb", tmp_path / "left.snb"
    run("fit", data / "part-1.parquet", "--label", "y", *KINDS, "-o", one)
    result = run("subtract", files / "state.snb", one, "-o", output, code=1)
    assert result.stderr.count("\n") == 1
    assert "Expected exact sums to subtract from, got rounded moments (numeric column 'x')" in result.stderr
    assert "--exact" in result.stderr
    assert not output.exists()
