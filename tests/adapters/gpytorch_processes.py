"""Sparse Gaussian processes of GPyTorch, their closed forms, and what GPyTorch itself says of them."""

import gpytorch
import jax
import numpy as np
import torch

# More threads than idle cores only wait for each other.
torch.set_num_threads(1)

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (40, 2))
Z = RNG.uniform(-2, 2, (6, 2))
LABELS = (X[:, 0] + 0.5 * RNG.normal(size=40) > 0).astype(float)
TARGETS = np.sin(X[:, 0]) + 0.4 * X[:, 1] + 0.1 * RNG.normal(size=40)
ERASED, REMAINING = slice(0, 8), slice(8, 40)
NOISE, CONSTANT, SCALE, LENGTHSCALES = 0.04, 0.3, 1.7, [1.1, 1.6]

variational, kernels = gpytorch.variational, gpytorch.kernels
WHITENED, UNWHITENED = variational.VariationalStrategy, variational.UnwhitenedVariationalStrategy
CHOLESKY = variational.CholeskyVariationalDistribution
MEAN_FIELD = variational.MeanFieldVariationalDistribution


def scaled(kernel):
    kernel.lengthscale = torch.tensor(LENGTHSCALES)
    scaled = kernels.ScaleKernel(kernel)
    scaled.outputscale = SCALE
    return scaled


def rbf():
    return scaled(kernels.RBFKernel(ard_num_dims=2))


def constant_mean():
    mean = gpytorch.means.ConstantMean()
    mean.constant = CONSTANT
    return mean


class Process(gpytorch.models.ApproximateGP):
    def __init__(
        self, strategy=WHITENED, distribution=CHOLESKY, kernel=rbf, mean=constant_mean, dtype=torch.float64
    ):
        super().__init__(strategy(self, torch.tensor(Z), distribution(len(Z))))
        self.mean_module, self.covar_module = mean(), kernel()
        self.to(dtype).eval()
        self.variational_strategy.variational_params_initialized.fill_(1)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gaussian_likelihood(dtype=torch.float64):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE
    return likelihood.to(dtype).eval()


def bernoulli_likelihood():
    return gpytorch.likelihoods.BernoulliLikelihood()


class AccurateBernoulli(gpytorch.likelihoods.BernoulliLikelihood):
    """GPyTorch's own log Φ is off by 7e-4 around −1.4, and its integrals have 20 nodes."""

    def __init__(self):
        with gpytorch.settings.num_gauss_hermite_locs(80):
            super().__init__()

    def expected_log_prob(self, observations, function_dist):
        return self.quadrature(lambda f: torch.special.log_ndtr(f * (2 * observations - 1)), function_dist)


def tensors(*arrays, dtype=torch.float64):
    return tuple(torch.tensor(array, dtype=dtype) for array in arrays)


def prior(gp, x=Z):
    """Mean and covariance of the process, as GPyTorch computes them."""
    with torch.no_grad():
        own = gp.forward(torch.tensor(x, dtype=gp.variational_strategy.inducing_points.dtype))
        return own.mean.double().numpy(), own.covariance_matrix.double().numpy()


def inducing_covariance(gp):
    return prior(gp)[1] + gp.variational_strategy.jitter_val * np.eye(len(Z))


def set_belief(gp, mean, covariance):
    """Make N(mean, covariance) the variational distribution of u."""
    strategy = gp.variational_strategy
    if isinstance(strategy, WHITENED):
        root = np.linalg.cholesky(inducing_covariance(gp))
        mean = np.linalg.solve(root, mean - prior(gp)[0])
        covariance = np.linalg.solve(root, np.linalg.solve(root, covariance).T)
    distribution = strategy._variational_distribution
    with torch.no_grad():
        distribution.variational_mean.copy_(torch.tensor(mean))
        if isinstance(distribution, CHOLESKY):
            distribution.chol_variational_covar.copy_(torch.tensor(np.linalg.cholesky(covariance)))
        else:
            distribution._variational_stddev.copy_(torch.tensor(np.sqrt(np.diag(covariance))))
    strategy._clear_cache()
    return gp


def belief(gp):
    """Mean and covariance of u, by GPyTorch's own formula for the strategy."""
    with torch.no_grad():
        own = gp.variational_strategy._variational_distribution()
        mean, covariance = own.mean.double().numpy(), own.covariance_matrix.double().numpy()
    if isinstance(gp.variational_strategy, UNWHITENED):
        return mean, covariance
    root = np.linalg.cholesky(inducing_covariance(gp))
    return prior(gp)[0] + root @ mean, root @ covariance @ root.T


def optimum(gp, rows, x=X):
    """The best q(u) for Gaussian noise, in closed form."""
    total = np.vstack([Z, x[rows]])
    mean, covariance = prior(gp, total)
    inverse = np.linalg.inv(inducing_covariance(gp))
    design = covariance[len(Z) :, : len(Z)] @ inverse
    spread = np.linalg.inv(inverse + design.T @ design / NOISE)
    shifted = TARGETS[rows] - mean[len(Z) :]
    return mean[: len(Z)] + spread @ design.T @ shifted / NOISE, spread


def predictions(gp, likelihood, x=X):
    """Mean and variance of the predictive distribution, in evaluation mode with its caches."""
    with torch.no_grad():
        own = likelihood(gp(torch.tensor(x, dtype=gp.variational_strategy.inducing_points.dtype)))
        return own.mean.double().numpy(), own.variance.double().numpy()


def gradient_of_elbo(gp, likelihood, targets, rows=slice(None)):
    """Of GPyTorch's own bound on some records, in the variational parameters: the largest entry."""
    gp.train()
    x, y = tensors(X[rows], targets[rows])
    bound = gpytorch.mlls.VariationalELBO(likelihood, gp, len(x))(gp(x), y)
    parameters = list(gp.variational_strategy._variational_distribution.parameters())
    found = torch.autograd.grad(len(x) * bound, parameters)
    gp.eval()
    return max(float(part.tril().abs().max() if part.ndim == 2 else part.abs().max()) for part in found)
