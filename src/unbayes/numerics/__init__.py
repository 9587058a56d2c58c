"""Quadrature, linear algebra, batches of records, fingerprints: what all rooms stand on."""
