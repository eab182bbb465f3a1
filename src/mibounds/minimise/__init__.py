"""Exit 2 of the flow, a loss: `MIPenalty` in any training loop.

penalty            mutual information as a term of a loss
total_correlation  that of several codes
alternation        fit q, then evaluate the bound with q held fixed
removal            the penalty's own way: a classifier and kernels, behind a gate
dependence         kernels, and the changes of columns that mutual information does not see
gates              no gradient without evidence
memory             the rows of the last batches
outliers           single values that would decide the scale of all others
health             whether the value means anything
second_opinions    what fresh models find
_faults            what is wrong, and what to do
_recorded_calls    whole calls of the penalty as CUDA graphs
_settings          what is chosen, and refused
"""
