"""Quadrature, linear algebra, batches of records, fingerprints, compilation: what all rooms stand on."""

from unbayes._numerics.programs import keep_by_default

keep_by_default()
