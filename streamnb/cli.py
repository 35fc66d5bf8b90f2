"""The command line: results on stdout, progress and notes on stderr, one clear line for an error.

Only Typer is imported here; each command imports what it needs, so that `--help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from streamnb import clifollow, cliscore, clitrain  # noqa: F401  # their commands come first
from streamnb.cliapp import app, example
from streamnb.clifiles import check_target, load, load_model, note, print_scores
from streamnb.options import Data, Model, Names, Workers, items, labels_of

__all__ = ["app", "main"]


@app.command(
    epilog=example(
        "streamnb predict model.snb new/ -o scored.parquet --proba --keep id",
        "streamnb predict model.snb new.parquet -o - | head",
    )
)
def predict(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Parquet, or .csv, or - for CSV on stdout.")],
    proba: Annotated[bool, typer.Option("--proba", help="Add a column proba_<label> per class.")] = False,
    keep: Annotated[Names, typer.Option(metavar="NAMES", help="Columns of DATA to copy into the output.")] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Copy all columns.")] = False,
    workers: Workers = None,
) -> None:
    """Score DATA of any length.

    The output has the columns kept, then `prediction`, and with --proba the probability of each class.
    """
    if keep and keep_all:
        raise typer.BadParameter("it copies all columns; give one of --keep and --keep-all", param_hint="--keep-all")
    to_stdout = str(output) == "-"
    if not to_stdout:
        check_target(output, [model])
    finished = load_model(model)
    kept: Any = "all" if keep_all else items(keep)

    from streamnb.score import predict

    if to_stdout:
        print_scores(finished, data, proba, kept, workers)
        return
    rows = predict(finished, data, output, proba=proba, keep=kept, workers=workers, progress=True)
    note(f"{rows:,} rows -> {output}")


@app.command(epilog=example("streamnb evaluate model.snb holdout.parquet"))
def evaluate(
    model: Model,
    data: Data,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    workers: Workers = None,
) -> None:
    """Measure a model on DATA that has labels.

    Accuracy, log loss, calibration, and precision and recall of each class.
    """
    finished = load_model(model)

    from streamnb.evaluation import evaluate

    report = evaluate(finished, data, workers=workers, progress=True)
    typer.echo(_json(report.to_dict()) if as_json else str(report))


@app.command(
    epilog=example(
        "streamnb explain model.snb holdout.parquet --rows 5",
        "streamnb explain model.snb new.parquet --label spam --against ham --top 20 --json",
    )
)
def explain(
    model: Model,
    data: Data,
    rows: Annotated[int, typer.Option(min=1, help="Rows to explain, from the start of DATA.")] = 5,
    label: Annotated[str | None, typer.Option(help="The class to explain.  [default: each row's answer]")] = None,
    against: Annotated[
        str | None, typer.Option(help="The class to compare it with.  [default: the best of the others]")
    ] = None,
    top: Annotated[int | None, typer.Option(min=0, help="Features of a row.  [default: 10; all with --json]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a model answers as it does.

    For the first rows of DATA: what each feature says for one class and against another, as log odds that add up to
    the difference of the two scores.
    """
    finished = load_model(model)
    wanted, versus = (
        None if given is None else labels_of([given], finished.classes, option)[0]
        for option, given in (("--label", label), ("--against", against))
    )

    from streamnb.explaintext import explained_rows, explanation_text

    most = 10 if top is None and not as_json else top
    found = explained_rows(finished, data, rows, label=wanted, against=versus, top=most)
    if as_json:
        typer.echo(_json(list(found)))
        return
    typer.echo("\n\n".join(explanation_text(row) for row in found))


@app.command(epilog=example("streamnb show state.snb", "streamnb show model.snb --json | jq .classes"))
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A state or a model.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing left out but by --top.")] = False,
    top: Annotated[int, typer.Option(min=0, help="Categories of a column, and features that tell most.")] = 10,
) -> None:
    """Show what is in a state or a model.

    Classes, columns, missing cells; of a state the features that tell most of the class, in bits, and of a model what
    speaks most for each class.
    """
    from streamnb.show import describe
    from streamnb.showtext import text

    description = describe(load(file), top)
    typer.echo(_json(description) if as_json else text(description))


@app.command(epilog=example("streamnb demo --rows 1000000", "streamnb demo --text", "streamnb demo --kafka"))
def demo(
    rows: Annotated[
        int | None,
        typer.Option(min=1000, help="Rows to make and to count.  [default: 4000000; 200000 with --text or --kafka]"),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Documents instead of tables.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Through a Kafka topic, with a broker of its own.")] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Make the files here and keep them.", show_default=False)
    ] = None,
    workers: Workers = None,
) -> None:
    """Do the main job on data that it makes.

    In a temporary folder, step by step: count, merge, finish, predict, evaluate.
    """
    from streamnb.demo import demo

    if text and kafka:
        raise typer.BadParameter("give one of --text and --kafka", param_hint="--kafka")
    demo(rows or (200_000 if text or kafka else 4_000_000), directory, workers, typer.echo, text=text, kafka=kafka)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def main() -> None:
    """Run the command line; the entry point of the script `streamnb`."""
    app(prog_name="streamnb")


if __name__ == "__main__":
    main()
