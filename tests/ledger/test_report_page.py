import dataclasses
import html.parser
import re

import pytest

from unbayes.ledger.contents import AskedFor, Dates, ErrorEstimate, RecordCounts, Residue
from unbayes.ledger.report_page import chart, day, error_sentence, headline, number, page
from unbayes.ledger.verify import verify_report

from .reports import CONTENTS, KEY, OPENINGS, report

VOID = {"meta", "link", "br", "hr", "img", "input"}


def shown(**changes):
    contents = dataclasses.replace(CONTENTS, **changes)
    return page(verify_report(report(contents), KEY.public))


def with_counts(*counts):
    request = AskedFor(12, "ab" * 32, tuple(f"{i:064x}" for i in range(counts[0])))
    return {"request": request, "records": RecordCounts(*counts)}


class Outline(html.parser.HTMLParser):
    """Whether elements are closed in order, and the words between them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.words, self.attributes = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *a) for a in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *a) for a in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_the_page_says_what_the_report_says():
    text = Outline(shown()).text
    for expected in (
        "On 18 November 2026, 3 records were taken out of the model credit, which since then is version 5.",
        "Trusted.",
        "20 October 2026",
        "20 November 2026",
        "18 November 2026, on time",
        "unbayes verify report.json --key public.pem",
        KEY.key_id,
        CONTENTS.into.sha256,
        CONTENTS.request.subject,
        "Good enough: 0.24",
        *CONTENTS.not_claimed,
        *CONTENTS.caveats,
        *(residue.what for residue in CONTENTS.remains),
        *(residue.until for residue in CONTENTS.remains),
    ):
        assert expected in text
    assert "certificate" not in text.lower()


def test_the_page_stands_alone():
    text = shown()
    outline = Outline(text)
    assert {name for _, name, _ in outline.attributes}.isdisjoint({"src", "href", "onload", "onclick"})
    assert "<script" not in text
    assert not re.search(r"url\(|@import|https?://", text)


def test_headings_and_tables_can_be_read_aloud():
    outline = Outline(shown())
    assert outline.headings[0] == 1
    assert set(outline.headings[1:]) == {2}
    ids = {value for _, name, value in outline.attributes if name == "id"}
    assert {value for _, name, value in outline.attributes if name == "aria-labelledby"} == ids
    text = shown()
    assert text.count("<th ") == text.count("<th scope=")
    assert ("html", "lang", "en") in outline.attributes


def test_what_others_wrote_is_no_markup():
    hostile = "<script>alert('x')</script>\"&"
    text = shown(
        model=hostile,
        method=hostile,
        settings=hostile,
        doubts=(hostile,),
        caveats=(hostile,),
        software={hostile: hostile},
        remains=(Residue(hostile, hostile),),
        not_claimed=(hostile,),
    )
    assert "<script" not in text
    assert Outline(text).text.count(hostile) >= 10


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((1, 1, 0, 0), "1 record was taken out"),
        ((2, 2, 0, 0), "2 records were taken out"),
        ((1_500, 1_500, 0, 0), "1,500 records were taken out"),
        ((1, 0, 1, 0), "no record had to be taken out"),
    ],
)
def test_headlines(counts, expected):
    assert expected in headline(dataclasses.replace(CONTENTS, **with_counts(*counts)))


def test_many_commitments_are_left_to_the_file():
    text = Outline(shown(**with_counts(25, 25, 0, 0))).text
    assert f"{9:064x}" in text
    assert f"{10:064x}" not in text
    assert "all 25 records" in text


def test_a_late_answer_and_an_extension_are_said():
    late = Dates.of("2026-08-20", "2026-09-20", "2026-11-21T08:00:00Z", "2026-11-20", True)
    text = Outline(shown(dates=late)).text
    assert "21 November 2026, late" in text
    assert "20 November 2026, with a reason given" in text


def test_an_unknown_key_is_to_be_compared():
    assert "Compare this key id" not in shown()
    assert f"Compare this key id with the one that the operator published: {KEY.key_id}" in Outline(
        page(verify_report(report()))
    ).text.replace(" .", ".")


def test_openings_are_mentioned_and_not_shown():
    text = page(verify_report(report(openings=OPENINGS), KEY.public))
    assert "keep the file private" in text
    assert "4711" not in text
    assert OPENINGS.subject.salt not in text


def test_an_error_that_cannot_be_told():
    text = shown(predicted_error=None, no_error_because="the method has no theory.")
    assert "cannot be told: the method has no theory." in text
    assert "<svg" not in text


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0.0, 0.0, 0.0, 1.0), "The method is exact"),
        ((0.1, 0.05, 0.2, 1.0), "nats away from a model that never saw the records: within"),
        ((0.1, 0.05, 0.9, 1.0), "probably within"),
        ((0.3, 0.05, 0.9, 1.0), "more than what the operator calls good enough, and 30% of what doing"),
        ((3.0, 0.05, 9.0, 1.5), "2 times what doing nothing would leave"),
        ((0.1, 0.05, 0.2, 0.0), "good enough."),
        ((1e300, 0.05, 1e300, 5e-324), "good enough."),
    ],
)
def test_the_error_in_words(numbers, expected):
    error = ErrorEstimate(*numbers, parameters=24, tolerance_per_parameter=0.01)
    assert expected in error_sentence(error)
    assert ("<svg" in shown(predicted_error=error)) == (numbers[0] > 0)


def test_places_on_a_logarithmic_axis():
    found = chart(ErrorEstimate(0.01, 0.001, 1.0, 10.0, parameters=10, tolerance_per_parameter=0.01))
    assert [found.low, found.value, found.tolerance, found.high, found.nothing] == pytest.approx(
        [3.0, 26.5, 50.0, 73.5, 97.0]
    )
    assert [tick.value for tick in found.ticks] == pytest.approx([0.001, 0.01, 0.1, 1.0, 10.0])


@pytest.mark.parametrize("tiny", [5e-324, 1e-30, 1e-5])
def test_no_place_is_outside_of_the_chart(tiny):
    for error in (
        ErrorEstimate(tiny, 0.0, tiny, 0.0, 1, 0.0),
        ErrorEstimate(1e300, tiny, 1.7e308, tiny, 3, 0.01),
        ErrorEstimate(1.0, 1.0, 1.0, 1.0, 1, 1.0),
    ):
        found = chart(error)
        places = [found.low, found.value, found.high, found.tolerance, found.nothing]
        places += [tick.at for tick in found.ticks]
        assert all(0 <= place <= 100 for place in places if place is not None)
        assert 2 <= len(found.ticks) <= 6


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (0.0031, "0.0031"),
        (1.0, "1"),
        (99.7, "100"),
        (12_345, "12,345"),
        (1e-5, "10⁻⁵"),
        (2.5e9, "2.5·10⁹"),
    ],
)
def test_numbers(value, expected):
    assert number(value) == expected


def test_days():
    assert day("2026-01-02") == "2 January 2026"
    assert day("2026-12-31T23:59:59.5Z") == "31 December 2026"
