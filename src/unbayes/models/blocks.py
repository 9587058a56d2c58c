"""Sparse Gaussian processes whose records are tied within blocks: PITC, and PIC."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from unbayes._numerics.records import CHUNK_ELEMENTS, require_records, to_float_array
from unbayes.models.evidence import LinearEvidence
from unbayes.models.features import AbstractFeatures
from unbayes.models.kernels import AbstractKernel
from unbayes.models.likelihoods import GaussianLikelihood, IntegratedLikelihood
from unbayes.models.linear import LinearModel
from unbayes.models.local_features import LocalFeatures, ProcessFeatures, require_open_process
from unbayes.posteriors import AbstractGaussian


class BlockProcess(LinearModel):
    """Sparse Gaussian process that is exact within blocks of records (PITC).

    Given θ, records of different blocks are independent, and those of a block B are not: y_B ~ N(A_B θ,
    K_BB − Q_BB + noise), where Q is what the inducing inputs explain. With blocks of one record this is FITC.

    Records are triples (inputs, targets, blocks), `blocks` any whole numbers; all rows of a block are given
    in one call. Evidence is the chain rule p(y_B|θ) = ∏ p(y_i|θ, y before i in B): features, a target and a
    variance for each record, from which those before it are regressed out.

    To erase a part of a block, give the rows of it that stay beside those that go: (inputs, targets, blocks,
    stays). What goes is then conditioned on what stays, p(y_gone|θ, y_stays), and rows that stay are no
    records themselves. Rows that were erased before are not given any more.

    Parameters
    ----------
    features
        `InducingInputs` or `WhitenedInducingInputs`, with `conditional_variance`.
    likelihood
        `IntegratedLikelihood(GaussianLikelihood(noise_scale))`.
    prior
        Of the process: `features.prior`.
    offset
        Mean of the process; zero unless given.
    """

    features: ProcessFeatures
    likelihood: IntegratedLikelihood

    def __init__(
        self,
        features: ProcessFeatures,
        likelihood: IntegratedLikelihood,
        prior: AbstractGaussian,
        offset: float | None = None,
    ):
        super().__init__(features, likelihood, prior, offset)
        self._require_process()

    def require_valid(self) -> None:
        """Refuse anything but a process with Gaussian noise, too."""
        super().require_valid()
        self._require_process()

    def _require_process(self) -> None:
        require_open_process(self.features, "features")
        inner = self.likelihood.likelihood if isinstance(self.likelihood, IntegratedLikelihood) else None
        if not isinstance(inner, GaussianLikelihood):
            raise ValueError("likelihood must be IntegratedLikelihood(GaussianLikelihood(noise_scale))")

    @property
    def has_tied_records(self) -> bool:
        """Whether evidence of a record depends on those given with it, which it does within a block."""
        return True

    @property
    def caveats(self) -> tuple[str, ...]:
        """What erased rows are taken for."""
        return ("erased rows were taken for whole blocks, but for the rows that were given as staying",)

    def encode(self, records: Any, name: str = "records") -> LinearEvidence:
        """Turn (inputs, targets, blocks), or (inputs, targets, blocks, stays), into evidence."""
        rows = self._read(records, name)
        design = np.asarray(self.encode_inputs(rows.inputs, f"{name} inputs")[0])
        mean, noise = np.asarray(self.offset or 0, design.dtype), self._noise + rows.targets[:, 1]
        # What is regressed out of features is regressed out of targets too.
        columns, left = np.column_stack([design, rows.targets[:, 0] - mean]), np.zeros_like(noise)
        explained = design @ np.asarray(self.prior.to_full().scale_tril)
        for places in _layouts(rows):
            is_there = places >= 0
            covariance = np.asarray(_covariances(self.features.kernel, rows.inputs[places]))
            covariance = covariance - explained[places] @ explained[places].mT
            covariance = np.where(is_there[:, :, None] & is_there[:, None, :], covariance, 0)
            covariance += np.where(is_there, noise[places], 1)[:, :, None] * np.eye(places.shape[1])
            regressed, variances = _regressed(columns[places], covariance, name)
            columns[places[is_there]], left[places[is_there]] = regressed[is_there], variances[is_there]
        columns, left = columns[~rows.stays], left[~rows.stays]
        open_variance = np.maximum(left - self._noise, 0)
        targets = np.column_stack([columns[:, -1] + mean, open_variance])
        return LinearEvidence(jax.device_put(columns[:, :-1]), None, jax.device_put(targets))

    def rows(self, records: Any, name: str = "records") -> tuple[Array, Array]:
        """Inputs and targets of the records themselves, as given."""
        rows = self._read(records, name)
        return jax.device_put(rows.inputs[~rows.stays]), jax.device_put(rows.targets[~rows.stays])

    def log_predictive(self, posterior, records, *, key=None, draws=1000):
        """Log-density of each record under `predictive`, by itself, whatever else is in its block."""
        return self._with(self.features).log_predictive(posterior, self.rows(records), key=key, draws=draws)

    def local(self, records: Any, name: str = "records") -> LinearModel:
        """The model that predicts within a block from its records too (PIC), for any belief about θ.

        It holds these records, (inputs, targets, blocks) of a single block: once some of them are erased,
        make it anew from those that are left.
        """
        rows = self._read(records, name)
        if len(np.unique(rows.blocks)) > 1 or rows.stays.any():
            raise ValueError(f"{name} must be all records of a single block")
        centred = rows.targets[:, 0] - np.asarray(self.offset or 0, self.dtype)
        features = LocalFeatures(self.features, rows.inputs, centred, self._noise + rows.targets[:, 1])
        return self._with(features)

    def _with(self, features: AbstractFeatures) -> LinearModel:
        """The same prior and likelihood of records that are not tied."""
        offset = None if self.offset is None else float(self.offset)
        return LinearModel(features, self.likelihood, self.prior, offset)

    @property
    def _noise(self) -> np.ndarray:
        """Variance of the noise that all records have."""
        assert isinstance(self.likelihood.likelihood, GaussianLikelihood)
        return np.asarray(self.likelihood.likelihood.noise_scale) ** 2

    def _read(self, records: Any, name: str) -> "_Rows":
        if not isinstance(records, tuple | list) or len(records) not in (3, 4):
            raise TypeError(
                f"{name} must be (inputs, targets, blocks) or (inputs, targets, blocks, stays), "
                f"got {type(records).__name__}{f' of {len(records)}' if hasattr(records, '__len__') else ''}"
            )
        shape = (None, self.features.inputs)
        inputs = np.asarray(to_float_array(records[0], f"{name} inputs", self.dtype, shape))
        targets = np.asarray(self.likelihood.encode_targets(records[1], f"{name} targets", self.dtype))
        blocks = _labels(records[2], f"{name} blocks", "iu", "whole numbers")
        stays = np.zeros(len(blocks), bool)
        if len(records) == 4:
            stays = _labels(records[3], f"{name} stays", "b", "booleans")
        lengths = [len(part) for part in (inputs, targets, blocks, stays)]
        if len(set(lengths)) > 1:
            raise ValueError(f"{name} must have one of each part in every row, got lengths {lengths}")
        require_records(int((~stays).sum()), name)
        return _Rows(inputs, targets, blocks, stays)


class _Rows(NamedTuple):
    """Records and rows that stay beside them; targets are pairs of a number and a variance."""

    inputs: Float[np.ndarray, "n k"]
    targets: Float[np.ndarray, "n 2"]
    blocks: Int[np.ndarray, " n"]
    stays: Bool[np.ndarray, " n"]


def _labels(values: Any, name: str, kinds: str, wanted: str) -> np.ndarray:
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.dtype.kind not in kinds:
        raise TypeError(f"{name} must be {wanted} of shape (n), got {labels.dtype} of shape {labels.shape}")
    return labels


def _layouts(rows: _Rows) -> Iterator[Int[np.ndarray, "b s"]]:
    """Rows of each block, those that stay first, then −1: blocks of about one size together."""
    order = np.lexsort((~rows.stays, rows.blocks))
    _, starts, sizes = np.unique(rows.blocks[order], return_index=True, return_counts=True)
    # Up to the next power of two, so that few shapes are compiled.
    widths = 1 << np.ceil(np.log2(sizes)).astype(int)
    for width in np.unique(widths):
        alike = np.flatnonzero(widths == width)
        for part in np.array_split(alike, -(-len(alike) * width**2 // CHUNK_ELEMENTS)):
            columns = np.arange(width)
            within = np.minimum(starts[part, None] + columns, len(order) - 1)
            yield np.where(columns < sizes[part, None], order[within], -1)


@eqx.filter_jit
def _covariances(kernel: AbstractKernel, inputs: Float[Array | np.ndarray, "b s k"]) -> Float[Array, "b s s"]:
    return jax.vmap(lambda x: kernel(x, x))(inputs)


def _regressed(
    columns: Float[np.ndarray, "b s p"], covariance: Float[np.ndarray, "b s s"], name: str
) -> tuple[Float[np.ndarray, "b s p"], Float[np.ndarray, "b s"]]:
    """Columns less what the rows before tell of each, and the variance that is left.

    By NumPy, whose factors of a batch wait for no thread.
    """
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{name} must have a covariance within blocks that is positive definite in {covariance.dtype}; "
            "give the likelihood more noise"
        ) from error
    scale = np.diagonal(factor, axis1=1, axis2=2)
    return scale[:, :, None] * np.linalg.solve(factor, columns), scale**2
