"""Exit 2 of the flow, a loss: `MIPenalty` in anybody's training loop.

penalty      fit q, then the bound with q held still
health       whether the value means anything
cuda_graph   a call of the penalty, recorded and replayed
uncompiled   a call that torch.compile leaves alone
"""
