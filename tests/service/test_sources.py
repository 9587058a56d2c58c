"""Looking records up by the person."""

from service.serving import caller, serving
from unbayes.ledger import Records
from unbayes.service import ServiceSettings
from unbayes.service.settings import Source


def test_a_table_is_read_once_however_many_people_are_looked_for(ledger, setting, tmp_path, monkeypatch):
    lines = [f"person {i},record-{i},{setting.x[i, 0]},{setting.x[i, 1]},{setting.y[i]}" for i in range(20)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["who,id,a,b,y", *lines, ""]))
    read, by_subject = [], Records.by_subject

    def counted(*arguments):
        read.append(arguments)
        return by_subject(*arguments)

    monkeypatch.setattr(Records, "by_subject", counted)
    with (
        serving(ledger, ServiceSettings(sources={"m": Source(path, "who")})) as address,
        caller(address, ledger, "submit") as client,
    ):
        form = {"requests": [{"subject": f"person {i}"} for i in range(20)]}
        answer = client.post("/v1/models/m/requests/many", json=form)
        assert (answer.status_code, answer.json()["new"]) == (201, 20)
        form["requests"].append({"subject": "nobody"})
        assert client.post("/v1/models/m/requests/many", json=form).status_code == 404
    assert len(read) == 2
