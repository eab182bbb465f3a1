"""Tables of mutual information: `rank` columns by a target, or a `matrix` of all pairs.

Single columns are pairs of two numbers for each row, which allows what many columns do not: ranks
turn every marginal into a known one, one column meets hundreds of others in a few products of
matrices, and a pair takes a tenth of a millisecond.

variables     columns of a table: kinds, rows with values, ranks
pairs         one column with many others: series of the copula, and counts
neighbours    any dependence of a pair, for more time
values        which of both is the value of a pair, its interval
blocks        all pairs, over processes or a cluster, kept on disk
significance  p-values, corrected for their number
results       what was found, as data
scales        nats, bits, normalised
conditions    what a column adds to others, for numbers
gains         the same for labels
matrices      matrix and its result
rankings      rank and its result
checks        what can be wrong
frames        results as data frames and JSON
plots         pictures of results
pages         the same in words, and as HTML
"""
