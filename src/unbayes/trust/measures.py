"""What is measured of a result; a verdict is a function of these numbers and of nothing else."""

from typing import NamedTuple

from unbayes.trust.limits import TOLERANCE


class Measures(NamedTuple):
    """What was measured; None where it does not apply or is not known.

    Attributes
    ----------
    dim
        Number of parameters.
    tolerance
        Nats of KL over θ, per parameter, that the caller calls good enough.
    records, training_records
        Numbers of erased records, and of those that the posterior was trained on.
    strangers
        How many of the erased records are not among the training records, by the roster; None without one.
    deviance, training_deviance
        E_q[log p] of the erased and of all training records, in nats below the most that it could be.
    unlikelihood
        How improbable the erased records are, taken together, each under the belief without it: minus the
        logarithm of a bound on the probability. None where the roster knows them all.
    improbable, improbable_rows
        How many of them are very improbable, each by itself, and the first few where they came at once.
    found_in_memory, expected_in_memory
        How many of them are in the coreset, and about how many were to be expected there.
    change
        KL, in nats, from the recovered belief to the trained one; None for flows.
    information
        I = H(θ|D_r) − H(θ|D) in nats: what the erased records had told the model.
    information_share
        The same as a share of what all training records told the model.
    stationarity
        Of q(θ|D), as training measured it, in nats.
    is_exact
        Whether the method recovers the retrained posterior itself.
    is_log_concave
        Whether the model is, so that records only ever add precision.
    is_sampled
        Whether the model's integrals are averages, good to a few digits only.
    evidence_left
        Least share of the trained belief's evidence that is left beyond the prior, over counts or directions
        of θ. Below zero, more was taken away than records can have brought.
    is_prior
        Whether nothing is left beyond the prior.
    effective_sample_size, khat
        Of the weights 1/p(D_e|θ) on draws of q(θ|D), adjusted where the method adjusts them.
    share_removed, least_share_removed
        Largest and least share of the belief's precision, over directions of θ, that the erased records had
        given. The largest is also the Pareto shape of the weights 1/p(D_e|θ), taken to second order. The
        least is negative where they had made the belief wider, which those of a log-concave model never do.
    erased_evidence, evidence
        Number of directions of θ that the erased records, and all records, determine: the trace of their
        share of the belief's precision.
    distance_to_step, step_change
        KL, in nats, from one natural-gradient step to the result of another method, and from that step to
        the trained belief.
    step
        Share of a full natural-gradient step that the mean took.
    keeps_width
        Whether only the mean was moved.
    knows_curvature
        Whether it is known how the parameters depend on each other.
    answering
        Share of what holds the mean, along its step, that is the remaining records' and not the prior's.
    inflation
        Mean ratio of a parameter's variance to that which a diagonal belief gives it.
    second_term
        KL, in nats, by which the memory moved the belief beyond one step. Without one: by
        which the step changed the pull of the erased records themselves, from their third derivatives.
    order
        Order of derivatives that the memory's sums corrected the step by; 1 where no sum was to be believed,
        None without sums.
    next_term
        KL, in nats, that the term of the series after the last would make.
    knows_next_term
        Whether it is known along all directions of the sums, not only along the leading ones.
    disagreement
        KL, in nats, between this way to sum the series and a more damped one.
    damping
        How strongly the change of the belief's width was damped in the series; 0 for the plain one.
    summed_share
        Part of what bends the log-likelihood that lies along the directions of the sums.
    coverage
        Share of the remaining records' precision that the coreset stands for.
    uncertainty
        Expected KL, in nats, that comes from having kept this coreset and no other.
    unsettled
        KL, in nats, between the coreset's correction and the fixed point that it goes to.
    rose
        Whether an objective that should fall ended, beyond noise, higher than it began.
    shift
        Root mean square distance from the trained mean, in standard deviations of q(θ|D).
    sampling_error
        Expected KL, in nats, that comes from the finite number of draws.
    projection_loss
        KL, in nats, between the recovered belief and what the trained family can hold of it.
    """

    dim: int = 0
    tolerance: float = TOLERANCE
    records: int = 0
    training_records: int | None = None
    strangers: int | None = None
    deviance: float | None = None
    training_deviance: float | None = None
    unlikelihood: float | None = None
    improbable: int = 0
    improbable_rows: tuple[int, ...] = ()
    found_in_memory: float | None = None
    expected_in_memory: float | None = None
    change: float | None = None
    information: float = 0.0
    information_share: float | None = None
    stationarity: float | None = None
    is_exact: bool = False
    is_log_concave: bool = False
    is_sampled: bool = False
    evidence_left: float | None = None
    is_prior: bool = False
    effective_sample_size: float | None = None
    khat: float | None = None
    share_removed: float | None = None
    least_share_removed: float | None = None
    erased_evidence: float | None = None
    evidence: float | None = None
    distance_to_step: float | None = None
    step_change: float | None = None
    step: float | None = None
    keeps_width: bool = False
    knows_curvature: bool = True
    answering: float = 1.0
    inflation: float = 1.0
    second_term: float | None = None
    order: int | None = None
    next_term: float | None = None
    knows_next_term: bool = True
    disagreement: float | None = None
    damping: float | None = None
    summed_share: float | None = None
    coverage: float | None = None
    uncertainty: float | None = None
    unsettled: float | None = None
    rose: bool = False
    shift: float | None = None
    sampling_error: float | None = None
    projection_loss: float | None = None
