"""Exit 2 of the flow, a loss: `MIPenalty` in any training loop.

penalty         the bound as a term of a loss
alternation     fit q, then evaluate the bound with q held fixed
health          whether the value means anything
_recorded_calls whole calls of the penalty as CUDA graphs
"""
