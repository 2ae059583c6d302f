"""Snakemake's own test workflows in each gear, by hand:

    pytest python/tests/harness/snakemake_workflows.py
"""

import os

import pytest
import snakemake_executor_plugin_starling as plugin
from snakemake.common.tests import TestWorkflowsLocalStorageBase

from tests.harness.clients import client


class Workflows(TestWorkflowsLocalStorageBase):
    __test__ = False
    gear = "strict"

    def get_executor(self):
        return "starling"

    def get_executor_settings(self):
        return plugin.ExecutorSettings(gear=self.gear)


@pytest.fixture(autouse=True)
def _client(monkeypatch):
    if os.environ.get("CLIENT"):
        make = client.__wrapped__

        monkeypatch.setattr(plugin.Executor, "make_client", lambda self, dir: make())
    else:
        client()


class TestStrict(Workflows):
    __test__ = True


class TestWarm(Workflows):
    __test__ = os.environ.get("CLIENT") != "fake"
    gear = "warm"


class TestDirect(Workflows):
    __test__ = True
    gear = "direct"
