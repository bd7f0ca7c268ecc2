"""An error of the page is said once, by the run that it belongs to."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from views.page.guard import FAILED


def fails() -> None:
    from views.page.guard import failed

    try:
        raise RuntimeError("dictionary changed size during iteration")
    except RuntimeError:
        failed("the page")


def fails_while_another_run_begins() -> None:
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    from views.page.guard import failed

    context = get_script_run_ctx()
    assert context is not None and context.script_requests is not None
    try:
        context.script_requests.request_stop()
        raise RuntimeError("dictionary changed size during iteration")
    except RuntimeError:
        failed("the page")


def test_an_error_is_logged_and_said(caplog: pytest.LogCaptureFixture) -> None:
    page = AppTest.from_function(fails).run()
    assert [each.value for each in page.error] == [FAILED]
    assert "the page failed" in caplog.text and "changed size" in caplog.text


def test_a_run_that_another_one_replaces_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    page = AppTest.from_function(fails_while_another_run_begins).run()
    assert not page.error and not page.exception
    assert "failed" not in caplog.text
