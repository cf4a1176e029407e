"""Solvers: numerical engines that know nothing of classes or estimators."""
