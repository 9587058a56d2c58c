"""Engines: objectives, the stochastic loop, natural-gradient ascent, Newton steps, mixing."""
