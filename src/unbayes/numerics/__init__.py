"""Quadrature, linear algebra, batches of records, fingerprints, compilation: what all rooms stand on."""

from unbayes.numerics.programs import keep_by_default

keep_by_default()
