"""The experiments of the paper: Nguyen, Low, Jaillet, “Variational Bayesian Unlearning”, NeurIPS 2020."""
