"""The command line: results on stdout, progress and notes on stderr, one clear line for an error.

Only Typer is imported here; each command imports what it needs, so that `--help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamnb.clierrors import Commands
from streamnb.clifiles import check_target, inferred, load, load_model, note, print_scores
from streamnb.options import Infinite, OnError, Unseen, class_prior, items, labels_of, number_or_numbers

if TYPE_CHECKING:
    from streamnb.state import State

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it starts faster, and reads the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _example(*lines: str) -> str:
    """The last paragraph of a command's help; the mark keeps its lines as they are."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


Data = Annotated[
    list[str], typer.Argument(metavar="DATA...", help="Files, globs, folders or object-store URIs.", show_default=False)
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)]
Workers = Annotated[int | None, typer.Option(min=1, help="Threads; one per core if not given.")]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model, or a state (finished with the defaults).", show_default=False)
]
StateFile = Annotated[Path, typer.Argument(metavar="STATE", help="A state file.", show_default=False)]
Names = list[str] | None


def _print_version(wanted: bool) -> None:
    if wanted:
        from streamnb import __version__

        typer.echo(f"streamnb {__version__}")
        raise typer.Exit


@app.callback()
def streamnb(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="STREAMNB_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Naive Bayes for tables larger than memory: one pass, exact merging, scikit-learn's numbers.

    Results go to stdout, progress and notes to stderr. Exit code 0; 1 with one line that says what is wrong; 2 for
    wrong usage. `streamnb COMMAND --help` explains a command.
    """


@app.command(
    epilog=_example(
        "streamnb fit data/ --label species -o state.snb",
        "streamnb fit 'day-*.parquet' --label y --numeric a,b --categorical c --checkpoint run.snb -o state.snb",
    )
)
def fit(
    data: Data,
    output: Output,
    label: Annotated[str | None, typer.Option(help="The column of the classes.")] = None,
    numeric: Annotated[
        Names, typer.Option(metavar="NAMES", help="Number columns, modelled as normal per class.")
    ] = None,
    categorical: Annotated[
        Names, typer.Option(metavar="NAMES", help="Columns of strings, integers or booleans as values.")
    ] = None,
    binary: Annotated[Names, typer.Option(metavar="NAMES", help="Columns of booleans or 0/1.")] = None,
    counts: Annotated[Names, typer.Option(metavar="NAMES", help="Columns of counts, such as words; one block.")] = None,
    weight: Annotated[str | None, typer.Option(help="The column of row weights.")] = None,
    exclude: Annotated[
        Names, typer.Option(metavar="NAMES", help="Columns to leave out where kinds come from types.")
    ] = None,
    infer: Annotated[bool, typer.Option("--infer", help="Place the columns not named by their types as well.")] = False,
    schema: Annotated[Path | None, typer.Option(help="All of this from a file of JSON instead.")] = None,
    binarize: Annotated[
        str | None, typer.Option(help="Threshold above which a binary column is 1: 0.5, or a=0.5,b=1.")
    ] = None,
    infinite: Annotated[Infinite | None, typer.Option(help="Refuse ±inf, or take it as missing.")] = None,
    workers: Workers = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A state file, written every few seconds.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    on_error: Annotated[OnError, typer.Option(help="Refuse a damaged file, or skip it.")] = OnError.raise_,
    verify_checksums: Annotated[
        bool, typer.Option("--verify-checksums", help="Check the page checksums of Parquet files (slower).")
    ] = False,
) -> None:
    """Count DATA in one pass into a state file.

    Lists of columns are separated by commas (a name with a comma stands in double quotes); options may be repeated.
    With no kind of column named, numbers are numeric, strings categorical, booleans binary.
    """
    kinds = {"numeric": numeric, "categorical": categorical, "binary": binary, "counts": counts}
    placed = {kind: items(names) for kind, names in kinds.items() if names}
    options = {
        "weight": weight,
        "binarize": number_or_numbers(binarize, "--binarize"),
        "infinite": None if infinite is None else infinite.value,
    }
    options = {name: value for name, value in options.items() if value is not None}
    by_type = infer or not placed
    if schema is not None and (label is not None or placed or options or exclude or infer):
        raise typer.BadParameter("it holds the label and all columns; give it alone", param_hint="--schema")
    if schema is None and label is None:
        raise typer.BadParameter("expected --label or --schema, got neither", param_hint="--label")
    if exclude and not by_type:
        raise typer.BadParameter("it belongs to kinds that come from types (see --infer)", param_hint="--exclude")
    if resume and checkpoint is None:
        raise typer.BadParameter("it goes on from a --checkpoint, which is not given", param_hint="--resume")
    if isinstance(options.get("binarize"), list):
        raise typer.BadParameter("expected one number or name=number", param_hint="--binarize")
    check_target(output, data)
    if checkpoint is not None:
        check_target(checkpoint, data)

    from streamnb.schema import Schema
    from streamnb.train import fit

    if schema is not None:
        chosen = Schema.from_json(schema.read_text(encoding="utf-8"))
    elif by_type:
        chosen = inferred(data, str(label), {**placed, **options}, items(exclude), on_error)
    else:
        named: dict[str, Any] = {**placed, **options}
        chosen = Schema(str(label), **named)
    try:
        state = fit(
            data,
            schema=chosen,
            workers=workers,
            progress=True,
            checkpoint=checkpoint,
            resume=resume,
            on_error=on_error.value,
            verify_checksums=verify_checksums,
        )
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            raise KeyboardInterrupt(
                f"interrupted; {checkpoint} holds what was counted, the same line with --resume goes on from it"
            ) from None
        raise
    state.save(output)
    note(f"{_summary(state)} -> {output}")


@app.command(epilog=_example("streamnb merge monday.snb tuesday.snb -o week.snb"))
def merge(
    states: Annotated[list[Path], typer.Argument(metavar="STATE...", help="State files.", show_default=False)],
    output: Output,
) -> None:
    """Add states up. A shard that several of them hold is counted once."""
    from streamnb.errors import MergeError
    from streamnb.state import State

    check_target(output)
    first = State.load(states[0])
    total = State(first.schema)
    for path in states:
        try:
            total.merge(first if path == states[0] else State.load(path))
        except MergeError as error:
            raise MergeError(f"{error} - {path}") from None
    total.save(output)
    note(f"{_summary(total)} -> {output}")


@app.command(
    epilog=_example(
        "streamnb finish week.snb -o model.snb --alpha 0.5 --prior uniform",
        "streamnb finish week.snb -o model.snb --complement --prior 'spam=0.2,ham=0.8'",
    )
)
def finish(
    state: StateFile,
    output: Output,
    alpha: Annotated[float | None, typer.Option(help="Smoothing of all but numeric columns.  [default: 1]")] = None,
    categorical_alpha: Annotated[float | None, typer.Option(help="Smoothing of categorical columns.")] = None,
    binary_alpha: Annotated[str | None, typer.Option(help="Smoothing of binary columns: 1, 1,2 or a=1,b=2.")] = None,
    counts_alpha: Annotated[str | None, typer.Option(help="Smoothing of counts columns: 1, 1,2 or a=1,b=2.")] = None,
    var_smoothing: Annotated[
        float | None, typer.Option(help="Part of the largest variance added to each.  [default: 1e-9]")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Added to each variance instead.")] = None,
    prior: Annotated[str, typer.Option(help="empirical, uniform, or a=0.7,b=0.3.")] = "empirical",
    prior_alpha: Annotated[float, typer.Option(help="Added to each class's weight before the prior is taken.")] = 0.0,
    complement: Annotated[bool, typer.Option("--complement", help="Complement for counts, not Multinomial.")] = False,
    norm: Annotated[bool, typer.Option("--norm", help="Normalise the weights of --complement.")] = False,
    unseen: Annotated[Unseen, typer.Option(help="What a category adds that training never saw.")] = Unseen.ignore,
    min_categories: Annotated[int | None, typer.Option(min=1, help="Categories of each column, at least.")] = None,
) -> None:
    """Turn the counts of a state into a model.

    Smoothing, priors and logarithms happen here; the state stays as it is, for other settings.
    """
    each_binary = number_or_numbers(binary_alpha, "--binary-alpha")
    each_counts = number_or_numbers(counts_alpha, "--counts-alpha")
    if norm and not complement:
        raise typer.BadParameter("it belongs to --complement", param_hint="--norm")
    if epsilon is not None and var_smoothing is not None:
        raise typer.BadParameter("it stands instead of --var-smoothing; give one", param_hint="--epsilon")
    check_target(output, [state])

    from streamnb.families import Bernoulli, Categorical, Complement, Gaussian, Multinomial
    from streamnb.state import State

    counted = State.load(state)
    for option, given, block in (
        ("--categorical-alpha", categorical_alpha, "categorical"),
        ("--min-categories", min_categories, "categorical"),
        ("--binary-alpha", binary_alpha, "binary"),
        ("--counts-alpha", counts_alpha, "counts"),
        ("--complement", complement or None, "counts"),
        ("--var-smoothing", var_smoothing, "numeric"),
        ("--epsilon", epsilon, "numeric"),
    ):
        if given is not None and not getattr(counted.schema, block):
            note(f"note: {option} changes nothing, the state has no {block} columns")
    common = 1.0 if alpha is None else alpha
    of_counts = common if each_counts is None else each_counts
    model = counted.finish(
        numeric=Gaussian(1e-9 if var_smoothing is None else var_smoothing, epsilon),
        categorical=Categorical(
            common if categorical_alpha is None else categorical_alpha, min_categories, unseen.value
        ),
        binary=Bernoulli(common if each_binary is None else each_binary),
        counts=Complement(of_counts, norm) if complement else Multinomial(of_counts),
        class_prior=class_prior(prior, counted.classes),
        prior_alpha=prior_alpha,
    )
    model.save(output)
    note(f"a model of {len(model.classes):,} classes, {len(model.schema.features):,} features -> {output}")


@app.command(
    epilog=_example(
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


@app.command(epilog=_example("streamnb evaluate model.snb holdout.parquet"))
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
    epilog=_example(
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


@app.command(epilog=_example("streamnb show state.snb", "streamnb show model.snb --json | jq .classes"))
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


@app.command(epilog=_example("streamnb demo --rows 1000000"))
def demo(
    rows: Annotated[int, typer.Option(min=1000, help="Rows to make and to count.")] = 4_000_000,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Make the files here and keep them.", show_default=False)
    ] = None,
    workers: Workers = None,
) -> None:
    """Do the main job on data that it makes.

    In a temporary folder, step by step: count, merge, finish, predict, evaluate.
    """
    from streamnb.demo import demo

    demo(rows, directory, workers, typer.echo)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def _summary(state: State) -> str:
    return f"{state.n_rows:,} rows, {len(state.classes):,} classes, {len(state.schema.features):,} features"


def main() -> None:
    """Run the command line; the entry point of the script `streamnb`."""
    app(prog_name="streamnb")


if __name__ == "__main__":
    main()
