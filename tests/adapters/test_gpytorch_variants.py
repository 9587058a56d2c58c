"""Variants of sparse processes as GPyTorch's own examples build them: supported and right, or refused."""

import functools
import warnings

import numpy as np
import pytest

gpytorch = pytest.importorskip("gpytorch", reason="needs the extra torch; run make test-torch")
torch = pytest.importorskip("torch")

from unbayes.adapters.gpytorch import remember, settle, unlearn

from .gpytorch_processes import (
    CHOLESKY,
    ERASED,
    KEY,
    LABELS,
    MEAN_FIELD,
    REMAINING,
    TARGETS,
    UNWHITENED,
    WHITENED,
    AccurateBernoulli,
    Process,
    X,
    belief,
    bernoulli_likelihood,
    gaussian_likelihood,
    gradient_of_elbo,
    kernels,
    optimum,
    predictions,
    rbf,
    scaled,
    tensors,
    variational,
)

likelihoods, means = gpytorch.likelihoods, gpytorch.means
NATURAL = variational.NaturalVariationalDistribution
TRIL_NATURAL = variational.TrilNaturalVariationalDistribution
COUNTS = np.random.default_rng(1).poisson(np.logaddexp(0, 1 + np.sin(X[:, 0]))).astype(float)


class Bowl(means.Mean):
    """A mean that somebody wrote."""

    def forward(self, x):
        return 0.3 * (x**2).sum(-1) - 0.5


def linear_mean():
    mean = means.LinearMean(2)
    with torch.no_grad():
        mean.weights.copy_(torch.tensor([[0.4], [-0.7]]))
        mean.bias.fill_(0.2)
    return mean


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()


class DeepForward(Process):
    """A deep kernel: the prior sees features of its inputs, inducing inputs too."""

    def __init__(self, **parts):
        super().__init__(**parts)
        self.network = network()

    def forward(self, x):
        return super().forward(self.network(x))


class DeepCall(Process):
    """A deep kernel whose inducing inputs are features."""

    def __init__(self, **parts):
        super().__init__(**parts)
        self.network = network()

    def __call__(self, x, **settings):
        return super().__call__(self.network(x), **settings)


def student_likelihood():
    likelihood = likelihoods.StudentTLikelihood()
    likelihood.noise, likelihood.deg_free = 0.04, 5.0
    return likelihood.double().eval()


def poisson_likelihood():
    return likelihoods.PoissonLikelihood()


OUTCOMES = {
    gaussian_likelihood: TARGETS,
    student_likelihood: TARGETS,
    bernoulli_likelihood: LABELS,
    poisson_likelihood: COUNTS,
}


def variant(process=Process, likelihood=gaussian_likelihood, **parts):
    return functools.partial(process, **parts), likelihood


def kernel(make):
    return variant(kernel=make)


SUPPORTED = {
    "rbf": kernel(rbf),
    "one lengthscale": kernel(lambda: kernels.ScaleKernel(kernels.RBFKernel())),
    "matern 0.5": kernel(lambda: scaled(kernels.MaternKernel(nu=0.5, ard_num_dims=2))),
    "matern 1.5": kernel(lambda: scaled(kernels.MaternKernel(nu=1.5, ard_num_dims=2))),
    "matern 2.5": kernel(lambda: scaled(kernels.MaternKernel(nu=2.5, ard_num_dims=2))),
    "rational quadratic": kernel(lambda: kernels.ScaleKernel(kernels.RQKernel())),
    "periodic": kernel(lambda: kernels.ScaleKernel(kernels.PeriodicKernel())),
    "linear": kernel(kernels.LinearKernel),
    "polynomial": kernel(lambda: kernels.PolynomialKernel(power=2)),
    "piecewise polynomial": kernel(lambda: kernels.PiecewisePolynomialKernel(q=2, ard_num_dims=2)),
    "spectral mixture": kernel(lambda: kernels.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2)),
    "random features": kernel(lambda: kernels.RFFKernel(num_samples=10, num_dims=2)),
    "sum": kernel(lambda: kernels.LinearKernel() + rbf()),
    "product": kernel(lambda: kernels.RBFKernel() * kernels.PeriodicKernel()),
    "some columns": kernel(lambda: kernels.RBFKernel(active_dims=(1,))),
    "sum over columns": kernel(
        lambda: kernels.LinearKernel(active_dims=(0,)) + kernels.MaternKernel(active_dims=(1,))
    ),
    "zero mean": variant(mean=means.ZeroMean),
    "linear mean": variant(mean=linear_mean),
    "mean of somebody's": variant(mean=Bowl),
    "unwhitened": variant(strategy=UNWHITENED),
    "unwhitened linear mean": variant(strategy=UNWHITENED, mean=linear_mean),
    "large batch": variant(strategy=variational.LargeBatchVariationalStrategy),
    "mean field": variant(distribution=MEAN_FIELD),
    "natural": variant(distribution=NATURAL),
    "natural unwhitened": variant(distribution=NATURAL, strategy=UNWHITENED, mean=linear_mean),
    "triangular natural": variant(distribution=TRIL_NATURAL),
    "triangular natural unwhitened": variant(distribution=TRIL_NATURAL, strategy=UNWHITENED),
    "deep in forward": variant(DeepForward),
    "deep in call": variant(DeepCall),
    "bernoulli": variant(likelihood=bernoulli_likelihood),
    "bernoulli linear mean": variant(likelihood=bernoulli_likelihood, mean=linear_mean),
    "bernoulli unwhitened": variant(likelihood=bernoulli_likelihood, strategy=UNWHITENED),
    "bernoulli natural": variant(likelihood=bernoulli_likelihood, distribution=NATURAL),
    "bernoulli deep": variant(DeepCall, bernoulli_likelihood),
    "poisson": variant(likelihood=poisson_likelihood),
    "poisson linear mean": variant(likelihood=poisson_likelihood, mean=linear_mean),
    "student": variant(likelihood=student_likelihood),
    "student natural": variant(likelihood=student_likelihood, distribution=NATURAL),
}


def own_bound(likelihood):
    """The likelihood with which GPyTorch's own bound is exact enough."""
    if type(likelihood) is likelihoods.BernoulliLikelihood:
        return AccurateBernoulli()
    with gpytorch.settings.num_gauss_hermite_locs(80):
        likelihood.quadrature = gpytorch.utils.quadrature.GaussHermiteQuadrature1D().double()
    return likelihood


def read_in_call(gp, x):
    return gp.network(torch.tensor(x)).detach().numpy() if isinstance(gp, DeepCall) else x


@pytest.mark.parametrize("name", SUPPORTED)
def test_supported_variants_settle_and_unlearn(name):
    """By the closed form for Gaussian noise, and else by the gradient of GPyTorch's own bound."""
    make, make_likelihood = SUPPORTED[name]
    gp, likelihood, y = make(), make_likelihood(), OUTCOMES[make_likelihood]
    settled, found = settle(gp, likelihood, tensors(X, y), key=KEY)
    assert found.converged
    assert found.after < 1e-9 < found.before
    bound = own_bound(likelihood)
    assert gradient_of_elbo(settled, bound, y) < 1e-3 * gradient_of_elbo(gp, bound, y)
    memory = remember(settled, likelihood, tensors(X, y), len(X), key=KEY)
    recovered, result = unlearn(settled, likelihood, tensors(X[ERASED], y[ERASED]), memory=memory, key=KEY)
    assert result.records == 8
    before, after = (gradient_of_elbo(each, bound, y, REMAINING) for each in (settled, recovered))
    assert after < 0.02 * before
    if make_likelihood is gaussian_likelihood and "distribution" not in make.keywords:
        for own, expected in zip(
            belief(recovered), optimum(recovered, REMAINING, read_in_call(gp, X)), strict=True
        ):
            np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-6)


class Wrapper(gpytorch.Module):
    """A deep kernel as GPyTorch's example writes it: the process is a layer."""

    def __init__(self):
        super().__init__()
        self.network, self.layer = network(), Process()

    def forward(self, x):
        return self.layer(self.network(x))


class Noisy(Process):
    def __call__(self, x, **settings):
        return super().__call__(x + torch.randn_like(x), **settings)


class Centred(Process):
    def __call__(self, x, **settings):
        return super().__call__(x - x.mean(0), **settings)


class Doubled(Process):
    def __call__(self, x, **settings):
        own = super().__call__(x, **settings)
        return gpytorch.distributions.MultivariateNormal(2 * own.mean, 4 * own.covariance_matrix)


class Dropped(Process):
    def __call__(self, x, **settings):
        return super().__call__(x[:1], **settings)


class Infinite(Process):
    def __call__(self, x, **settings):
        return super().__call__(torch.log(x), **settings)


class Single(Process):
    """Holds a tensor that is neither parameter nor buffer, and so stays in single precision."""

    def __init__(self, **parts):
        super().__init__(**parts)
        self.rotation = torch.eye(2)

    def forward(self, x):
        return super().forward(x @ self.rotation)


def nearest(gp, points, q):
    return variational.NNVariationalStrategy(gp, points, q, k=2, training_batch_size=2)


def orthogonal(gp, points, q):
    inner = WHITENED(gp, points, CHOLESKY(len(points)))
    return variational.OrthogonallyDecoupledVariationalStrategy(inner, points + 0.5, q)


def tasks(gp, points, q):
    return variational.IndependentMultitaskVariationalStrategy(WHITENED(gp, points, q), num_tasks=2)


def with_likelihood(make):
    return variant(likelihood=make)


STRATEGY = r"strategy of gp must be .*, got {}".format
LIKELIHOOD = r"likelihood must be GPyTorch's .*, got {}".format
REFUSED = {
    "point": (
        variant(distribution=variational.DeltaVariationalDistribution),
        r"must be a Gaussian, got a DeltaVariationalDistribution: a point does not tell how sure",
    ),
    "contour integrals": (
        variant(strategy=variational.CiqVariationalStrategy, distribution=NATURAL),
        STRATEGY("CiqVariationalStrategy"),
    ),
    "decoupled": (
        variant(strategy=variational.BatchDecoupledVariationalStrategy),
        STRATEGY("BatchDecoupledVariationalStrategy"),
    ),
    "orthogonal": (
        variant(strategy=orthogonal, distribution=variational.DeltaVariationalDistribution),
        STRATEGY("OrthogonallyDecoupledVariationalStrategy"),
    ),
    "nearest neighbours": (
        variant(strategy=nearest, distribution=MEAN_FIELD),
        STRATEGY("NNVariationalStrategy"),
    ),
    "several outputs": (variant(strategy=tasks), STRATEGY("IndependentMultitaskVariationalStrategy")),
    "noise of each record": (
        with_likelihood(lambda: likelihoods.FixedNoiseGaussianLikelihood(torch.ones(40))),
        LIKELIHOOD("FixedNoiseGaussianLikelihood"),
    ),
    "laplace": (with_likelihood(likelihoods.LaplaceLikelihood), LIKELIHOOD("LaplaceLikelihood")),
    "beta": (with_likelihood(likelihoods.BetaLikelihood), LIKELIHOOD("BetaLikelihood")),
    "softmax": (
        with_likelihood(lambda: likelihoods.SoftmaxLikelihood(num_features=1, num_classes=3)),
        LIKELIHOOD("SoftmaxLikelihood"),
    ),
    "layer": (variant(Wrapper), r"got Wrapper; hand in its layer layer, and as inputs what that layer is"),
    "random": (variant(Noisy), r"gp must see every input by itself, always the same way; .* erased inputs"),
    "of the batch": (variant(Centred), r"gp must see every input by itself, always the same way"),
    "other outputs": (
        variant(Doubled),
        r"gp must predict what its mean, kernel and variational dist.* off by",
    ),
    "undefined": (
        variant(Infinite),
        r"gp must take erased inputs .*, got NaN or infinity as what it makes of",
    ),
    "fewer inputs": (variant(Dropped), r"gp must hand each row of erased inputs to its variational strategy"),
    "single precision": (
        variant(Single),
        r"gp.forward must take its inducing points in double precision, got",
    ),
    "no covariance": (
        kernel(lambda: kernels.CosineKernel() * kernels.RBFKernel()),
        r"gp must predict what its mean, kernel and|not positive definite",
    ),
    "mean of two": (variant(mean=torch.nn.Identity), r"gp.forward must return one mean for each of 6 inputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_with_a_sentence(name):
    (make, make_likelihood), match = REFUSED[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp, likelihood = make(), make_likelihood()
    with pytest.raises((TypeError, ValueError), match=match):
        unlearn(gp, likelihood, tensors(X[ERASED], TARGETS[ERASED]), key=KEY)


def test_a_layer_can_be_handed_in_with_its_inputs():
    """A process within a wrapper, given features, is the same as a module that makes them itself."""
    whole, wrapper, likelihood = DeepCall(), Wrapper(), gaussian_likelihood()
    features = wrapper.network(torch.tensor(X)).detach()
    one, _ = settle(whole, likelihood, tensors(X, TARGETS), key=KEY)
    other, _ = settle(wrapper.layer, likelihood, (features, torch.tensor(TARGETS)), key=KEY)
    np.testing.assert_allclose(belief(one)[0], belief(other)[0], rtol=1e-9)


def test_images_reach_a_network_as_they_are():
    class Flat(DeepCall):
        def __call__(self, x, **settings):
            return super().__call__(x.flatten(1), **settings)

    likelihood = gaussian_likelihood()
    one, _ = settle(Flat(), likelihood, (X.reshape(-1, 2, 1), TARGETS), key=KEY)
    other, _ = settle(DeepCall(), likelihood, (X, TARGETS), key=KEY)
    np.testing.assert_array_equal(belief(one)[0], belief(other)[0])
    with pytest.raises(ValueError, match=r"gp must take records inputs of shape \(2, 3\) .*, got"):
        settle(DeepCall(), likelihood, (np.ones((40, 3)), TARGETS), key=KEY)


def test_inducing_inputs_that_are_the_training_inputs():
    """GPyTorch takes a short cut where it is asked for just these, which is the same to its jitter."""

    def strategy(gp, points, _):
        return UNWHITENED(gp, torch.tensor(X), CHOLESKY(len(X)))

    gp, likelihood = Process(strategy), gaussian_likelihood()
    # The first call starts from the prior.
    gp.variational_strategy.variational_params_initialized.fill_(0)
    gp(torch.tensor(X))
    settled, found = settle(gp, likelihood, tensors(X, TARGETS), key=KEY)
    assert found.converged
    recovered, result = unlearn(settled, likelihood, tensors(X[ERASED], TARGETS[ERASED]), key=KEY)
    assert result.trusted
    other, _ = settle(gp, likelihood, tensors(X[REMAINING], TARGETS[REMAINING]), key=KEY)
    for own, expected in zip(predictions(recovered, likelihood), predictions(other, likelihood), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-6)
