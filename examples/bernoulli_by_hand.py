"""Four rows, three words, alpha 1: every number of the model worked out with pencil and paper.

Two mails are spam, with the words [1, 0, 1] and [1, 1, 0]; two are not, [0, 1, 0] and [0, 0, 1].

- prior: 2 of 4 rows are spam, so 1/2 and 1/2
- P(word is there | class) = (rows with the word + 1) / (rows + 2):
  spam 3/4, 2/4, 2/4; not spam 1/4, 2/4, 2/4
- the new mail [1, 0, 1] (a word that is absent scores 1 - P):
  spam     1/2 * 3/4 * (1 - 2/4) * 2/4 = 3/32 = 0.09375
  not spam 1/2 * 1/4 * (1 - 2/4) * 2/4 = 1/32 = 0.03125
- divided by their sum: 3/4 and 1/4
"""

import numpy as np
import polars as pl

import streamnb as snb

words = ["offer", "meeting", "free"]
mails = pl.DataFrame(
    [["spam", 1, 0, 1], ["spam", 1, 1, 0], ["not spam", 0, 1, 0], ["not spam", 0, 0, 1]],
    schema=["kind", *words],
    orient="row",
)
state = snb.State(snb.Schema(label="kind", binary=words))
state.update(mails)
model = state.finish(binary=snb.Bernoulli(alpha=1.0))

mail = pl.DataFrame([[1, 0, 1]], schema=words, orient="row")
order = [model.classes.to_pylist().index(kind) for kind in ("spam", "not spam")]
joint = np.exp(model.predict_joint_log_proba(mail))[0, order]
posterior = model.predict_proba(mail)[0, order]
log_posterior = model.predict_log_proba(mail)[0, order].round(4)

print("                  spam   not spam")
print(f"joint          {joint[0]:.5f}    {joint[1]:.5f}")
print(f"posterior      {posterior[0]:.5f}    {posterior[1]:.5f}")
print(f"log posterior  {log_posterior[0]:.4f}    {log_posterior[1]:.4f}")
