"""Ten-fold cross-validation with one pass and ten subtractions: what fold i trains on is the total minus fold i.

Adding up the nine other folds for each of ten takes ninety additions; taking one out of the total takes one. With
sums of floats the two would differ, by what rounding left of the fold that was held out. With exact sums they are the
same state, so no held-out row can reach the model that is tested on it.
"""

import numpy as np
import polars as pl
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import KFold, cross_val_score
from sklearn.naive_bayes import GaussianNB

import streamnb as snb

K = 10
data = load_breast_cancer(as_frame=True)
table = pl.from_pandas(data.frame)
schema = snb.Schema(label="target", numeric=data.feature_names, exact=True)
splitter = KFold(K, shuffle=True, random_state=0)
folds = [table[rows] for _, rows in splitter.split(table)]

states = []
for fold in folds:
    state = snb.State(schema)
    state.update(fold)
    states.append(state)
total = sum(states, snb.State(schema))

accuracies = []
for i, fold in enumerate(folds):
    others = total - states[i]
    accuracies.append(snb.evaluate(others.finish(), fold).accuracy)

# What was subtracted is gone: the same state as from the other nine folds, to the bit.
added = sum(states[1:], snb.State(schema))
print(f"total minus fold 0 is the sum of the others: {total - states[0] == added}")

theirs = cross_val_score(GaussianNB(), data.data.to_numpy(), data.target.to_numpy(), cv=splitter)
for i, (ours, other) in enumerate(zip(accuracies, theirs, strict=True)):
    print(f"fold {i}: {len(folds[i]):3} rows, accuracy {ours:.4f}, scikit-learn's {other:.4f}")
print(f"mean accuracy {np.mean(accuracies):.4f}")
