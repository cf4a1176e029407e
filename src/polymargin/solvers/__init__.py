"""Solvers: mathematics on arrays, without estimators, codebooks or decoders."""
