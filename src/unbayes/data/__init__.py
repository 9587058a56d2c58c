"""Where records come from: tables on disk, and which of their columns a model takes."""
