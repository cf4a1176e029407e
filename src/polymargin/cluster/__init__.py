"""Cluster: fits to rows of Dask collections, and lazy predictions of them.

The work is Dask's: its tree reductions add up statistics, its shuffle brings rows to their leaves, its scheduler
recomputes what a worker that died has lost. Here are only the tasks. Nothing of the size of the data comes to the
client: samples of rows, statistics and the tree do.

Importing this folder needs no Dask; its files do.
"""

from polymargin.cluster.detection import is_dask

__all__ = ["is_dask"]
