"""Exit 1 of the flow, a number: `estimate` with its methods, interval, diagnostics and report.

estimation       estimate(x, y) and the Estimate that it returns: read, run, judge
methods          METHODS, the registry, and which of them is the default
runs             one method on the samples: value, error, permutations
choice           which of several outcomes gives the value, and what is possible
copula_model     the default method: a Gaussian copula with corrections
canonical_codes  codes of few columns for many, and what they certify
independence     the statistic of permutation tests
classical        estimators without a network
tables           rank columns by a target; a matrix of all pairs
splits           folds, subsets and orders of rows
series           lags of two series, transfer entropy
conditional_shares what each row contributes to I(x; y | z)
decompositions   interaction, redundancy and synergy, total correlation
entropies        entropy(x) of labels and of numbers
quantities       what these two return
diagnostics      reasons to distrust a number
results          what was found, as data
wording          the same in words, as plain text and HTML
plots            pictures of it
sample_plots     a picture of the samples
report           all of these on one page
"""
