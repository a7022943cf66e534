"""Failures in the shared helpers are explained like those in the tests."""

import pytest

pytest.register_assert_rewrite("cases", "contract", "slow", "tolerances")
