"""Engines that others built: sums over records that are spread over a cluster, by Dask or Spark."""
