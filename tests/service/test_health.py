"""The routes that anybody may call."""

import httpx

import unbayes


def test_it_answers_without_a_token(address):
    assert httpx.get(f"{address}/health").json() == {"status": "fine"}
    assert httpx.get(f"{address}/version").json() == {"version": unbayes.__version__}


def test_what_is_not_there_is_a_problem_document(address):
    answer = httpx.get(f"{address}/nowhere")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 404
