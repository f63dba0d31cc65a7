"""The HTML around the page: nothing is left out, nothing in it can end a script, and it is reproducible."""

from pathlib import Path

from sample_data import page, sample_run

from steelyard.page import document
from steelyard.page.document import ASSETS, list_document, live_document, saved_document

FILES = Path(document.__file__).parent / "assets"
BREAKING = '"><script>alert(1)</script>'


def test_every_script_of_the_folder_is_part_of_the_page():
    assert sorted(document.SCRIPTS) == sorted(path.stem[5:] for path in FILES.glob("page_*.js"))
    for path in FILES.glob("page_*.js"):
        assert path.read_text(encoding="utf-8") in document.page_script()
        assert len(path.read_text(encoding="utf-8").splitlines()) < 300


def test_nothing_inside_ends_a_script_or_style():
    assert "</script" not in document.page_script().lower()
    assert b"</style" not in ASSETS["page.css"]().lower()


def test_the_same_data_make_the_same_file_of_two_megabytes():
    data = page(sample_run(10, 30, adversaries=3))
    text = saved_document(data, "A run")
    assert text == saved_document(data, "A run")
    assert len(text.encode()) < 3_000_000


def test_numbers_that_json_does_not_have_are_missing():
    run = sample_run(2, 1)
    run["seconds"] = float("nan")
    assert saved_document(page(run), "A run") == saved_document(page(run | {"seconds": None}), "A run")


def test_titles_and_addresses_are_escaped():
    texts = (
        saved_document(page(sample_run(2, 1)), BREAKING + "\ud800"),
        live_document(BREAKING + "\ud800", BREAKING, BREAKING, BREAKING),
        list_document(BREAKING + "\ud800", BREAKING, BREAKING, BREAKING),
    )
    for text in texts:
        assert "<script>alert" not in text
        text.encode()


def test_served_pages_have_a_nonce_on_every_script_and_no_policy_of_their_own():
    text = live_document("A run", "/token/", "/token/run/a/events", "secret")
    assert text.count("<script") == text.count('<script nonce="secret" src="/token/assets/') == 2
    assert "Content-Security-Policy" not in text
    assert 'data-events="/token/run/a/events"' in text
