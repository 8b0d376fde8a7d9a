"""The suite lives in the package, so its asserts must be asked to explain themselves."""

import pytest

pytest.register_assert_rewrite("raf.testing.store_suite")
