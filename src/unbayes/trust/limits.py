"""Every limit behind a verdict, each with where it comes from.

Those marked *scenarios* were set on the scenarios of `benchmarks/trust.py`, so that no result which is worse
than doing nothing is trusted there.
"""

from typing import NamedTuple


class Range(NamedTuple):
    """Between which multiples of a prediction the truth lies, in nine of ten scenarios."""

    low: float
    high: float


# Nats of KL over θ, per parameter, that are good enough unless a caller says otherwise: the belief is off by
# a seventh of a standard deviation in every direction.
TOLERANCE = 0.01
# Predicted error, as a share of what doing nothing would leave, that is small beside it: the result is worth
# having even where it is not within the tolerance.
SMALL_BESIDE_NOTHING = 0.1

# What predictions are multiplied by to hold the truth (scenarios): where the series of sums converges, where
# it does not but is believed, where it is not, with a coreset, with one step alone, with one that was held
# back, and with a bank of draws.
SUMS_RANGE, DIVERGING_RANGE, UNSUMMED_RANGE = Range(0.3, 4.0), Range(0.15, 8.0), Range(0.5, 150.0)
CORESET_RANGE, SAMPLING_RANGE = Range(0.2, 5.0), Range(0.1, 5.0)
STEP_RANGE, HELD_BACK_RANGE = Range(0.03, 12.0), Range(0.01, 200.0)
# The next term of a series that converges, or the difference that another way to sum it makes, as a share of
# the correction; and in any case the next term as a share of the step.
LARGEST_NEXT_TERM = 0.25
# The next term as a share of the correction up to which it is the error. Beyond, the error is the term times
# that share's multiple of this one, to a power that grows with how much of what holds the mean answers
# (scenarios, by robust regression; stable as each data set is left out).
SETTLED_NEXT_TERM, ANSWER_GROWTH, TERM_DECAY = 0.05, 1.75, 1.3
# Error of a coreset's correction as a share of its uncertainty: what its records must add up to is known, and
# they are made to, which takes away some of the chance (scenarios, median). For a diagonal belief that counts
# as many times as the root of its inflation says, midway between records that pull alike and at random.
UNCERTAINTY_SCALE = 0.4
# Error of one step as a share of it, at most (scenarios, median of those where it is largest).
STEP_SHARE = 0.13

# Pareto shape of importance weights above which weighted averages converge too slowly to be used, and above
# which the weights have no mean to converge to (Vehtari et al., 2024).
DOUBTED_KHAT, REFUSED_KHAT = 0.7, 1.0

# Largest share of the precision, in some direction, that a step may take away by itself (scenarios).
REFUSED_SHARE = 0.9

# Share of the precision by which erased records may have widened the belief before a model is called not
# log-concave: integrals of log-concave models are that good. In networks it is 0.24 to 120.
LARGEST_NEGATIVE_SHARE = 0.1

# Share of the posterior's own precision by which erased records may exceed what it holds beyond its prior.
# Stochastic training leaves errors of a few per cent; records never trained on go far beyond.
DOUBTED_EXCESS, REFUSED_EXCESS = 0.05, 0.5

# Stationarity, as a share of what unlearning changes, that is no longer called convergence (scenarios); and
# in nats per parameter: what training left undone is as large as an error that somebody would notice.
DOUBTED_STATIONARITY, DOUBTED_STATIONARITY_ALONE = 0.1, 0.01

# Nats by which a belief may shrink, when records are taken away, before that is called odd: rounding of
# float32 entropies with hundreds of parameters.
DOUBTED_SHRINKAGE = 0.1

# Root mean square distance from the trained mean, in standard deviations of q(θ|D), beyond which a descent
# has run away; a draw of q(θ|D) itself has 1.
LARGEST_SHIFT = 3.0

# Sampling error of weighted moments, as a share of the change that they make: half in standard deviations.
DOUBTED_SAMPLING_ERROR = 0.25

# What a family cannot hold of the recovered belief, as a share of what unlearning changed.
DOUBTED_PROJECTION_LOSS = 0.1

# Surprise, in nats below the likeliest outcome, beyond which a record is improbable by itself: one in a
# million, 5.3 standard deviations of a Gaussian.
IMPROBABLE_RECORD = 14.0
# Share of a batch that may be improbable: real data have outliers.
DOUBTED_IMPROBABLE = 1e-3
# The same of a batch, taken together.
DOUBTED_UNLIKELIHOOD, REFUSED_UNLIKELIHOOD = 14.0, 50.0

# Part by which the deviance of erased records may exceed that of all training records: sampled integrals are
# off by a few per cent, and so is what is carried on from one request to the next.
REFUSED_DEVIANCE = 0.05

# Probability, if all erased records had been trained on, of finding so few of them in a coreset.
DOUBTED_ABSENCE = 1e-4
# Least share of the chance of an average record that any record has to be drawn into a coreset.
LEAST_CHANCE = 0.5
