"""Exit 1 of the flow, a number: `estimate` with its methods, interval, diagnostics and report.

estimation          estimate(x, y): choose methods, cross-fit, compare, judge
copula_model        the default method: a Gaussian copula with learned corrections
label_regressions   its part for labels
classical           estimators without a network
diagnostics         reasons to distrust a number
results             what estimate() returns
plots, report       pictures of it
"""
