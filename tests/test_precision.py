"""A float64 posterior in a float32 process gets a sentence, wherever it is used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from unbayes import metrics
from unbayes._validation import require_precision

KEY = jax.random.key(0)
X, Y = np.linspace(-1, 1, 8)[:, None], np.array([0, 1] * 4)
SENTENCE = (
    r'must be float32 .* got float64; call jax\.config\.update\("jax_enable_x64", True\).*JAX_ENABLE_X64=1'
)


def belief():
    return ub.FullGaussian(jnp.zeros(2), jnp.eye(2))


def model():
    return ub.logistic_regression(1)


USES = {
    "refine": lambda q, m: ub.refine(q, m, (X, Y), key=KEY),
    "predictive": lambda q, m: m.predictive(q, X),
    "log_predictive": lambda q, m: m.log_predictive(q, (X, Y)),
    "predictive_kl": lambda q, m: metrics.predictive_kl(q, q, m, X),
    "agreement": lambda q, m: metrics.agreement(q, q, m, X),
    "parameter_kl": lambda q, m: metrics.parameter_kl(q, q),
    "entropy": lambda q, m: metrics.entropy(q),
    "information": lambda q, m: metrics.information(q, q),
}


@pytest.mark.parametrize("name", USES)
def test_a_posterior_of_another_process(name):
    posterior = belief()
    with jax.enable_x64(False), pytest.raises(ValueError, match=rf"^(posterior|first|remaining) {SENTENCE}"):
        USES[name](posterior, model())


@pytest.mark.parametrize("name", ["refine", "predictive", "log_predictive"])
def test_a_model_of_another_process(name):
    wide = model()
    with jax.enable_x64(False), pytest.raises(ValueError, match=f"^model {SENTENCE}"):
        USES[name](belief(), wide)


def test_what_fits_is_let_through():
    require_precision(posterior=belief(), model=None)
    with jax.enable_x64(False):
        require_precision(posterior=belief(), model=model())
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), belief())
    require_precision(posterior=narrow)
