"""Weights from labels, over arrays: pairs, loss, optimum, intervals, and the order held out."""
