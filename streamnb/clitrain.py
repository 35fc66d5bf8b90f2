"""The commands that count and finish: `fit`, `merge`, `subtract`, `finish`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamnb.cliapp import app, example
from streamnb.clifiles import check_target, chosen_schema, note
from streamnb.clitext import (
    Buckets,
    DocumentFrequency,
    Idf,
    KeepCase,
    MaxTokens,
    MinCount,
    Ngrams,
    Normalize,
    StopWords,
    StripAccents,
    Sublinear,
    TextAlpha,
    TextFamily,
    TextNames,
    TextTokens,
    family_of_text,
    text_columns,
)
from streamnb.options import (
    Data,
    Infinite,
    Names,
    OnError,
    Output,
    StateFile,
    Unseen,
    Workers,
    class_prior,
    i_of_n,
    items,
    number_or_numbers,
)

if TYPE_CHECKING:
    from streamnb.state import State

__all__ = ["finish", "fit", "merge", "subtract"]


@app.command(
    epilog=example(
        "streamnb fit data/ --label species -o state.snb",
        "streamnb fit 'day-*.parquet' --label y --numeric a,b --categorical c --checkpoint run.snb -o state.snb",
        "streamnb fit mail/ --label folder --text subject,body --ngrams 1,2 -o state.snb",
        "streamnb fit data/ --label y --shard 3/8 -o part-3.snb    # and 1/8 ... 8/8 elsewhere, then merge",
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
    text: TextNames = None,
    text_tokens: TextTokens = None,
    ngrams: Ngrams = None,
    stop_words: StopWords = None,
    keep_case: KeepCase = False,
    strip_accents: StripAccents = False,
    buckets: Buckets = None,
    sublinear: Sublinear = False,
    normalize: Normalize = None,
    document_frequency: DocumentFrequency = False,
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
    exact: Annotated[
        bool, typer.Option("--exact", help="Add up without rounding: the state depends on its rows alone (slower).")
    ] = False,
    max_categories: Annotated[
        int | None, typer.Option(min=1, help="Refuse a categorical column with more distinct values.")
    ] = None,
    workers: Workers = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A state file, written every few seconds.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    on_error: Annotated[OnError, typer.Option(help="Refuse a damaged file, or skip it.")] = OnError.raise_,
    verify_checksums: Annotated[
        bool, typer.Option("--verify-checksums", help="Check the page checksums of Parquet files (slower).")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Count the I-th of N parts only; merge gives the whole.")
    ] = None,
) -> None:
    """Count DATA in one pass into a state file.

    Lists of columns are separated by commas (a name with a comma stands in double quotes); options may be repeated.
    With no kind of column named, numbers are numeric, strings categorical, booleans binary. The options of text hold
    for all text columns; a --schema file may give each its own.
    """
    kinds = {"numeric": numeric, "categorical": categorical, "binary": binary, "counts": counts}
    placed: dict[str, Any] = {kind: items(names) for kind, names in kinds.items() if names}
    texts = text_columns(
        items(text),
        tokens=text_tokens,
        ngrams=ngrams,
        stop_words=stop_words,
        keep_case=keep_case,
        strip_accents=strip_accents,
        buckets=buckets,
        sublinear=sublinear,
        normalize=normalize,
        document_frequency=document_frequency,
    )
    placed |= {"text": texts} if texts else {}
    options = {
        "weight": weight,
        "binarize": number_or_numbers(binarize, "--binarize"),
        "infinite": None if infinite is None else infinite.value,
        "exact": exact or None,
        "max_categories": max_categories,
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
    divided = i_of_n(shard)
    check_target(output, data)
    if checkpoint is not None:
        check_target(checkpoint, data)

    from streamnb.train import fit

    chosen = chosen_schema(data, label, schema, {**placed, **options}, items(exclude) if by_type else None, on_error)
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
            shard=divided,
        )
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            raise KeyboardInterrupt(
                f"interrupted; {checkpoint} holds what was counted, the same line with --resume goes on from it"
            ) from None
        raise
    state.save(output)
    note(f"{_summary(state)} -> {output}")


@app.command(epilog=example("streamnb merge monday.snb tuesday.snb -o week.snb"))
def merge(
    states: Annotated[list[Path], typer.Argument(metavar="STATE...", help="State files.", show_default=False)],
    output: Output,
) -> None:
    """Add states up. A shard that several of them hold is counted once.

    States of fit --shard give the state of the whole, to the byte; what is missing or doubled is said on stderr.
    """
    from streamnb.errors import MergeError
    from streamnb.parts import shard_names
    from streamnb.state import State

    check_target(output)
    first = State.load(states[0])
    total = State(first.schema)
    for i, path in enumerate(states):
        state = State.load(path) if i else first
        doubled = state.ledger.keys() & total.ledger.keys()
        try:
            total.merge(state)
        except MergeError as error:
            raise MergeError(f"{error} - {path}") from None
        if doubled:
            what = shard_names(state.parts) or f"{len(doubled):,} of {len(state.ledger):,} pieces"
            note(f"note: {what} came before, counted once - {path}")
    total.save(output)
    _note_gaps(total)
    note(f"{_summary(total)} -> {output}")


@app.command(epilog=example("streamnb subtract all.snb customer.snb -o rest.snb"))
def subtract(
    state: StateFile,
    gone: Annotated[
        list[Path], typer.Argument(metavar="GONE...", help="States of the rows to take out.", show_default=False)
    ],
    output: Output,
) -> None:
    """Take rows out of a state, as if they had never been counted.

    Counts can always be taken out, moments and weights only of states made with --exact. Shards that both hold by name
    go with their names; other rows leave a state that does not know its shards' names.
    """
    check_target(output)

    from streamnb.errors import MergeError
    from streamnb.state import State

    left = State.load(state)
    for path in gone:
        try:
            left.subtract(State.load(path))
        except MergeError as error:
            raise MergeError(f"{error} - {path}") from None
    left.save(output)
    note(f"{_summary(left)} -> {output}")


@app.command(
    epilog=example(
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
    norm: Annotated[bool, typer.Option("--norm", help="Normalise the weights of a complement.")] = False,
    text_family: TextFamily = None,
    text_alpha: TextAlpha = None,
    idf: Idf = False,
    min_count: MinCount = None,
    max_tokens: MaxTokens = None,
    unseen: Annotated[Unseen, typer.Option(help="What a category adds that training never saw.")] = Unseen.ignore,
    min_categories: Annotated[int | None, typer.Option(min=1, help="Categories of each column, at least.")] = None,
) -> None:
    """Turn the counts of a state into a model.

    Smoothing, priors and logarithms happen here; the state stays as it is, for other settings.
    """
    each_binary = number_or_numbers(binary_alpha, "--binary-alpha")
    each_counts = number_or_numbers(counts_alpha, "--counts-alpha")
    if norm and not complement and text_family != "complement":
        raise typer.BadParameter("it belongs to --complement or --text-family complement", param_hint="--norm")
    if epsilon is not None and var_smoothing is not None:
        raise typer.BadParameter("it stands instead of --var-smoothing; give one", param_hint="--epsilon")
    check_target(output, [state])

    from streamnb.families import Bernoulli, Categorical, Complement, Gaussian, Multinomial
    from streamnb.state import State

    counted = State.load(state)
    _note_gaps(counted)
    for option, given, block in (
        ("--categorical-alpha", categorical_alpha, "categorical"),
        ("--min-categories", min_categories, "categorical"),
        ("--binary-alpha", binary_alpha, "binary"),
        ("--counts-alpha", counts_alpha, "counts"),
        ("--complement", complement or None, "counts"),
        ("--text-family", text_family, "text"),
        ("--text-alpha", text_alpha, "text"),
        ("--idf", idf or None, "text"),
        ("--min-count", min_count, "text"),
        ("--max-tokens", max_tokens, "text"),
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
        text=family_of_text(
            text_family,
            common if text_alpha is None else text_alpha,
            norm=norm,
            idf=idf,
            min_count=min_count,
            max_tokens=max_tokens,
        ),
        class_prior=class_prior(prior, counted.classes),
        prior_alpha=prior_alpha,
    )
    model.save(output)
    note(f"a model of {len(model.classes):,} classes, {len(model.schema.features):,} features -> {output}")


def _note_gaps(state: State) -> None:
    for gap in state.gaps:
        note(f"note: {gap}")


def _summary(state: State) -> str:
    return f"{state.n_rows:,} rows, {len(state.classes):,} classes, {len(state.schema.features):,} features"
