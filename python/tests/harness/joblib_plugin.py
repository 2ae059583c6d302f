"""Joblib's own tests, by hand. The backend is registered before the tests are collected.

    pytest -p tests.harness.joblib_plugin JOBLIB/test/test_parallel.py -k starling
"""

import starling.joblib  # noqa: F401 (it registers the backend)

from .clients import client

_kept = client()
