"""Parsl's own tests, by hand:

    pytest PARSL/tests/test_python_apps --config python/tests/harness/parsl_config.py \
        -k "not cleannet and not staging_required and not multiple_cores_required" --random-order
"""

import parsl.config
import starling.parsl
from tests.harness.clients import client


def fresh_config():
    executor = starling.parsl.Executor(client=client())
    return parsl.config.Config(executors=[executor], strategy="none")
