"""A network for Fashion-MNIST, of which only the last layer will be Bayesian."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.progress import AbstractProgress
from unbayes_paper.base import Records

HIDDEN = (128, 128, 64)
CLASSES = 10
BATCH = 256


class Network(eqx.Module):
    """Fully connected layers of 128, 128 and 64 rectified units, and a softmax layer."""

    hidden: list[eqx.nn.Linear]
    last: eqx.nn.Linear

    def __init__(self, inputs: int, key: PRNGKeyArray):
        sizes = (inputs, *HIDDEN, CLASSES)
        keys = jr.split(key, len(sizes) - 1)
        layers = [
            eqx.nn.Linear(before, after, key=key, dtype=jnp.float32)
            for before, after, key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        ]
        self.hidden, self.last = layers[:-1], layers[-1]

    def features(self, x: Float[Array, " pixels"]) -> Float[Array, " 64"]:
        """The 64 units of the last hidden layer."""
        for layer in self.hidden:
            x = jax.nn.relu(layer(x))
        return x

    def __call__(self, x: Float[Array, " pixels"]) -> Float[Array, " 10"]:
        """Logits."""
        return self.last(self.features(x))


def train(records: Records, epochs: int, key: PRNGKeyArray, progress: AbstractProgress) -> Network:
    """Adam at 1e-3 on batches of 256, in single precision."""
    x, y = records
    start_key, order_key = jr.split(key)
    network = Network(x.shape[1], start_key)
    optimizer = optax.adam(1e-3)
    state = optimizer.init(eqx.filter(network, eqx.is_array))
    pixels, labels = jnp.asarray(x), jnp.asarray(y)
    with progress.track("training the network", epochs) as advance:
        for epoch_key in jr.split(order_key, epochs):
            order = jr.permutation(epoch_key, len(y))[: len(y) // BATCH * BATCH].reshape(-1, BATCH)
            network, state, loss = _epoch(network, state, pixels, labels, order, optimizer)
            advance(1, f"{float(loss):.4f}")
    return network


@eqx.filter_jit
def _epoch(network: Network, state, pixels, labels, order, optimizer):
    arrays, rest = eqx.partition(network, eqx.is_array)

    def step(carry, rows):
        arrays, state = carry

        def loss(arrays):
            logits = jax.vmap(eqx.combine(arrays, rest))(_scaled(pixels[rows]))
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows]).mean()

        value, gradient = jax.value_and_grad(loss)(arrays)
        updates, state = optimizer.update(gradient, state)
        return (eqx.apply_updates(arrays, updates), state), value

    (arrays, state), losses = jax.lax.scan(step, (arrays, state), order)
    return eqx.combine(arrays, rest), state, losses.mean()


def features_of(network: Network, x: np.ndarray) -> np.ndarray:
    """Last hidden layer, shape (n, 64)."""
    return np.asarray(_features(network.features, jnp.asarray(x)))


@eqx.filter_jit
def _features(features: Callable, x):
    return jax.vmap(features)(_scaled(x))


def _scaled(pixels):
    return pixels.astype(jnp.float32) / jnp.float32(255)
