"""Dask's own tests, by hand: every scheduler that they name is that of Starling.

    pytest -p tests.harness.dask_plugin DASK/tests/test_delayed.py DASK/bag/tests/test_bag.py
"""

import dask
import starling.dask

from .clients import client


def pytest_configure(config):
    get = starling.dask.StarlingClient(client()).get
    dask.config.set(scheduler=get)
    # Many tests name a scheduler, and `assert_eq` does.
    for name in list(dask.base.named_schedulers):
        dask.base.named_schedulers[name] = get
