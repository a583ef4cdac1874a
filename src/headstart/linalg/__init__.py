"""Closed forms of Gaussian linear models; nothing here knows an nn.Module."""
