"""Data sets: found, checked, or asked for with a sentence."""

import numpy as np
import pytest

from unbayes_paper import data
from unbayes_paper.flights import flights, new_york


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """Neither a folder nor a cache nor a network."""
    monkeypatch.delenv("UNBAYES_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def offline(**settings):
        raise OSError("no network")

    monkeypatch.setattr(data, "fetch_openml", offline)
    return tmp_path


@pytest.mark.parametrize(
    ("load", "file"), [(data.banknote, data.BANKNOTE_FILE), (data.fashion, data.FASHION_FILE)]
)
def test_missing_data_are_asked_for(nowhere, load, file):
    with pytest.raises(data.DataMissing, match=rf"UNBAYES_DATA to a folder that holds {file}.*no network"):
        load()


def test_other_records_are_refused(nowhere, monkeypatch):
    np.savetxt(nowhere / data.BANKNOTE_FILE, np.ones((5, 5)), delimiter=",")
    monkeypatch.setenv("UNBAYES_DATA", str(nowhere))
    with pytest.raises(data.DataMissing, match="does not hold the expected records"):
        data.banknote()


def test_the_digest_minds_records_and_not_their_order():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.integers(0, 2, 20)
    order = rng.permutation(20)
    assert data.digest(x, y) == data.digest(x[order], y[order])
    assert data.digest(x, y) != data.digest(x, 1 - y)
    assert data.digest(x, y) != data.digest(x + 1, y)


def test_a_download_is_checked_and_kept(nowhere, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = np.round(rng.normal(size=(20, 4)), 4), rng.integers(0, 2, 20)

    class Found:
        data = x
        target = (y + 1).astype(str)

    downloads = []
    monkeypatch.setattr(data, "fetch_openml", lambda **settings: downloads.append(settings) or Found())
    with pytest.raises(data.DataMissing, match="digest"):
        data.banknote()
    assert data.find(data.BANKNOTE_FILE) is None
    monkeypatch.setattr(data, "BANKNOTE_DIGEST", data.digest(x, y))
    for _ in range(2):
        found_x, found_y = data.banknote()
        np.testing.assert_array_equal(found_x, x)
        np.testing.assert_array_equal(found_y, y)
    assert len(downloads) == 2
    assert downloads[0]["data_id"] == 1462


def test_real_banknotes():
    if data.find(data.BANKNOTE_FILE) is None:
        pytest.skip(f"UNBAYES_DATA does not hold {data.BANKNOTE_FILE}")
    x, y = data.banknote()
    assert x.shape == (1372, 4)
    assert np.bincount(y).tolist() == [762, 610]


def test_flights_from_new_york():
    source = new_york(20_000)
    batches = list(source.batches())
    x, y = (np.concatenate(each) for each in zip(*batches, strict=True))
    assert len(y) == source.rows >= 20_000
    assert x.shape[1] == len(source.columns) == 8
    assert np.isfinite(x).all()
    assert np.isfinite(y).all()
    assert set(x[:, source.columns.index("month")]) == set(range(1, 13))
    assert set(x[:, source.columns.index("weekday")]) == set(range(7))
    assert x[0, source.columns.index("weekday")] == 1  # The first of January 2013 was a Tuesday.
    assert x[:, source.columns.index("dep_time")].max() <= 24 * 60


def test_us_flights_come_in_batches():
    if data.find("flights-3m.parquet") is None:
        pytest.skip("UNBAYES_DATA does not hold flights-3m.parquet")
    source = flights(30_000)
    batches = list(source.batches())
    assert max(len(y) for _, y in batches) <= 10_000
    x = np.concatenate([x for x, _ in batches])
    assert len(x) == source.rows == 30_000
    assert set(x[:, 0]) == {1, 2, 3, 4, 5, 6}
    assert x[0, 2] == 0  # The first of January 2001 was a Monday.
    assert x[0, 3] == 1  # At 00:01,
    assert x[0, 4] == 2176  # from Las Vegas to Philadelphia.
    np.testing.assert_allclose(x[0, 5:], [36.08, -115.15, 39.87, -75.24], atol=0.01)
