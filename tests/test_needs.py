"""What a missing part does to a test."""

from __future__ import annotations

import pytest

pytest_plugins = "pytester"


@pytest.fixture
def marked(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers = needs(part): x\naddopts = -p no:cacheprovider -p no:asyncio")
    pytester.makeconftest("from tests.needs import check as pytest_runtest_setup")
    pytester.makepyfile("import pytest\n@pytest.mark.needs(part='no_such_module')\ndef test(): pass")
    return pytester


def test_fails_where_everything_is_required(marked: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """CI cannot pass by skipping."""
    monkeypatch.setenv("RL_OTEL_TEST_REQUIRE", "1")
    result = marked.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no_such_module is not installed*"])


def test_skips_with_its_reason(marked: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer without the part is told what is missing."""
    monkeypatch.delenv("RL_OTEL_TEST_REQUIRE", raising=False)
    result = marked.runpytest_inprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no_such_module is not installed*"])
