"""A result that is worse than doing nothing is not trusted; `make trust` shows it on many more scenarios."""

import pytest

import unbayes as ub
from problems import KEY
from scenarios import scenarios
from unbayes.metrics import predictive_kl

PROBLEMS = scenarios()
NEGLIGIBLE = 1e-6


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.long
def test_nothing_harmful_is_trusted(name):
    problem = PROBLEMS[name]
    full = ub.fit(problem.model, problem.full, memory=60, key=KEY)
    retrained = ub.fit(problem.model, problem.remaining, key=KEY).posterior
    for memory in (None, full.memory):
        result = ub.unlearn(full.posterior, problem.model, problem.erased, memory=memory, key=KEY)
        for part in (problem.erased, problem.remaining):
            before, after = (
                predictive_kl(retrained, q, problem.model, part[0], key=KEY, draws=300).forward.mean
                for q in (full.posterior, result.posterior)
            )
            assert after <= before + NEGLIGIBLE or not result.trusted


@pytest.mark.long
def test_what_is_measured():
    problem = PROBLEMS["counts, random third"]
    full = ub.fit(problem.model, problem.full, key=KEY)
    result = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
    measures = result.trust.measures
    assert measures.stationarity == full.stationarity
    assert 0 < measures.information_share < 0.2
    assert 0.3 < measures.share_removed < 0.5
    assert measures.step == 1
    assert measures.second_term < 0.05
    # Gaussian weights have a tail of just this shape: none need be drawn.
    assert (measures.khat, measures.effective_sample_size) == (None, None)
    bank = ub.BankReverseKL(draws=2000)
    drawn = ub.unlearn(full.posterior, problem.model, problem.erased, method=bank, key=KEY)
    assert measures.share_removed == pytest.approx(drawn.khat, abs=0.15)
    assert result.verdict is ub.Verdict.TRUSTED
    for line in (
        "stationarity of q(θ|D)",
        "precision removed",
        "second term",
        "verdict                trusted",
    ):
        assert line in str(result)


def test_training_that_stopped_early_is_doubted():
    problem = PROBLEMS["counts, random third"]
    method = ub.NaturalGradientVI(iterations=1)
    full = ub.fit(problem.model, problem.full, method=method, key=KEY)
    assert full.stationarity > 1e-6
    one = tuple(part[:1] for part in problem.erased)
    result = ub.unlearn(full.posterior, problem.model, one, memory=full.memory, key=KEY)
    assert any("training had not converged" in doubt for doubt in result.doubts)
