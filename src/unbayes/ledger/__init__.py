"""A ledger of models and erasure requests, with a log and reports that somebody else can check."""
