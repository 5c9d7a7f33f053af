"""Errors in words for those who can fix them."""

import pytest

from kp_batch.errors import explain_error


@pytest.mark.parametrize("module", ["obstore", "obstore.store"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(module: str) -> None:
    missing = ModuleNotFoundError(f"No module named {module!r}", name=module)
    told = explain_error(missing, "warehouse/last-run.log")
    remedy = "install that package in this environment: pip install obstore"
    assert (str(told), told.code) == (f"No module named {module!r}; {remedy}", "package")
