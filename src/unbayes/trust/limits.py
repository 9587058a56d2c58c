"""Every limit behind a verdict, each with where it comes from.

Those marked *scenarios* were set on the scenarios of `benchmarks/trust.py`, so that no result which is worse
than doing nothing is trusted there.
"""

# Pareto shape of importance weights above which weighted averages converge too slowly to be used, and above
# which the weights have no mean to converge to (Vehtari et al., 2024).
DOUBTED_KHAT, REFUSED_KHAT = 0.7, 1.0

# Second term of the expansion as a multiple of the step. Above the second limit, steps were often seen to do
# harm (scenarios).
DOUBTED_SECOND_TERM, REFUSED_SECOND_TERM = 0.2, 7.0

# Largest share of the precision that was removed in some direction (scenarios).
REFUSED_SHARE = 0.9

# The same where there is no second term to go by (scenarios).
DOUBTED_SHARE_ALONE, REFUSED_SHARE_ALONE = 0.3, 0.7

# Share of the precision by which erased records may have widened the belief before a model is called not
# log-concave: integrals of log-concave models are that good. In networks it is 0.24 to 120.
LARGEST_NEGATIVE_SHARE = 0.1

# Share of the remaining records' precision that a coreset stands for (scenarios).
DOUBTED_COVERAGE, REFUSED_COVERAGE = 0.5, 0.1

# Nats per parameter that the draw of a coreset may be worth (scenarios).
DOUBTED_UNCERTAINTY = 0.1

# Part of the change that may be missing where the coreset's correction is cut short (scenarios).
DOUBTED_UNSETTLED = 0.01

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
