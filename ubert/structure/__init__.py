"""UBERT's structure table: its batches, head, loss, decoding and kernels."""
