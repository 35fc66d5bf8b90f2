"""Forget one customer: the state that is left, and its model, are those that never saw a row of theirs.

A shop has learned from three months of orders. A customer asks to be forgotten. Their rows are counted once more and
subtracted; nothing else is read again. That the rest never saw them is not a matter of trust: its digest is the digest
of a state made from everybody else's rows.
"""

import numpy as np
import polars as pl
import pyarrow.compute as pc

import streamnb as snb


def orders(seed: int, rows: int) -> pl.DataFrame:
    """Make a month of orders: amounts of all sizes, and what the customer wrote."""
    rng = np.random.default_rng(seed)
    returned = rng.random(rows) < 0.2
    amount = np.exp(rng.normal(np.where(returned, 4.0, 3.0), 1.5))
    return pl.DataFrame(
        {
            "customer": rng.integers(0, 500, rows),
            "returned": np.where(returned, "returned", "kept"),
            "amount": np.round(amount, 2),
            "trust": rng.random(rows),
            "country": rng.choice(["Chile", "Ghana", "Peru"], rows),
            "note": np.where(returned, rng.choice(["too small", "late"], rows), rng.choice(["thanks", "late"], rows)),
        }
    ).with_columns(note=pl.when(pl.col.customer == 7).then(pl.lit("ring at the blue door")).otherwise(pl.col.note))


def knows(state: snb.State, word: str) -> bool:
    """Say whether a state holds a word of the notes."""
    return word in state.to_table().filter(pc.field("feature") == "note")["category"].to_pylist()


schema = snb.Schema(
    label="returned", numeric=["amount"], categorical=["country"], text=["note"], weight="trust", exact=True
)
months = [orders(seed, 4_000) for seed in range(3)]

# Each month was counted when it came, on some machine or other.
learned = snb.State(schema)
for i, month in enumerate(months):
    state = snb.State(schema, shard=f"month {i}")
    state.update(month)
    learned += state
print(f"learned from {learned.n_rows} rows; the word 'blue' is known: {knows(learned, 'blue')}")

# Customer 7 asks to be forgotten.
theirs = snb.State(schema)
theirs.update(pl.concat(months).filter(pl.col.customer == 7))
forgotten = learned - theirs
print(f"without customer 7: {forgotten.n_rows} rows; the word 'blue' is known: {knows(forgotten, 'blue')}")

# The proof: everybody else's rows, in another order and in one piece, have the same digest and give the same model.
others = snb.State(schema)
others.update(pl.concat(months).filter(pl.col.customer != 7).sample(fraction=1.0, shuffle=True, seed=1))
same_model = forgotten.finish().to_bytes() == others.finish().to_bytes()
print(f"digest {forgotten.digest()}, and of a state that never saw them {others.digest()}")
print(f"equal states: {forgotten == others}, equal models: {same_model}")
