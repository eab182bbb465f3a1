"""What comes in: samples of x and y, checked, paired, joined over processes, or read as a stream.

arrays      samples of any container, as numpy arrays
checks      shapes, dtypes and values of tensors
columns     tables of mixed columns, as numbers and labels
batches     one batch, or one that several processes hold together
pairs       scores of all pairs (x_i, y_j), in blocks
streams     data sets larger than memory, piece by piece
seeds       one way to say randomness
"""
