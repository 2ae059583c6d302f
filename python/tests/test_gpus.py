"""Calls that ask for GPUs, for other resources and for labels."""

import os
import unittest

from . import node  # noqa: F401 (it sets the path)
import starling
from starling._options import Options

from .test_end_to_end import WAIT, missing

_missing = missing()


def asked(**options):
    return Options().changed(options).fields("f")["resources"]


class Texts(unittest.TestCase):
    def test_what_calls_ask_for(self):
        self.assertEqual(asked(), "")
        self.assertEqual(asked(gpus=1), "gpus=1")
        self.assertEqual(asked(gpus=0.25), "gpus=0.25")
        self.assertEqual(asked(gpus="all"), "gpus=all")
        self.assertEqual(asked(gpus=None), "")
        self.assertEqual(asked(gpus=0, resources={"licence": 0}), "")
        self.assertEqual(asked(resources={"b": 2, "a": "2 compact!"}), "a=2 compact!, b=2")
        self.assertEqual(asked(gpus=1, labels=("x", "y")), "gpus=1, label=x, label=y")
        self.assertEqual(asked(labels="x"), "label=x")
        self.assertTrue(Options().changed({"labels": "x"}).may_be_refused())
        hash(Options().changed({"resources": {"a": 1}}))

    def test_wrong_ones_are_refused_at_once(self):
        for wrong in (
            {"gpus": -1},
            {"gpus": True},
            {"gpus": "many"},
            {"gpus": 0.00001},
            {"gpus": float("nan")},
            {"resources": {"a b": 1}},
            {"resources": {"a, label=x": 1}},
            {"resources": {"cpus": 1}},
            {"resources": {"a": "1, b=2"}},
            {"gpus": 1, "resources": {"gpus": 1}},
            {"labels": ["a|b"]},
            {"labels": [""]},
        ):
            with self.assertRaises(ValueError, msg=wrong):
                Options().changed(wrong)
        with self.assertRaises(TypeError):
            Options().changed({"resources": ["gpus"]})


def devices():
    seen = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("STARLING_RESOURCE_gpus")
    return os.getpid(), *seen, os.environ.get("STARLING_RESOURCE_licence")


def of_a_call():
    return starling.Client().options(gpus=1).submit(devices).result(WAIT)


@unittest.skipIf(_missing is not None, _missing)
class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pools = ["gpus=[g0,g1]", "licence=sum(3)"]
        cls.cluster = starling.LocalCluster(nodes=1, slots=2, resources=pools)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client()
        cls.addClassCleanup(cls.client.close)

    def test_calls_see_their_own_gpus(self):
        plain = self.client.submit(devices).result(WAIT)
        self.assertEqual(plain[1:], ("", None, None))
        one = self.client.options(gpus=1)
        first, second = one.submit(devices).result(WAIT), one.submit(devices).result(WAIT)
        self.assertIn(first[1], ("g0", "g1"))
        self.assertEqual(first, second, "the same GPU, the same process")
        self.assertNotEqual(first[0], plain[0])
        both = self.client.options(gpus=2, resources={"licence": 1.5}).submit(devices).result(WAIT)
        self.assertEqual(both[1:], ("g0,g1", "g0,g1", "1.5"))

    def test_calls_of_calls_ask_as_well(self):
        _, seen, _, _ = self.client.submit(of_a_call).result(WAIT)
        self.assertIn(seen, ("g0", "g1"))

    def test_what_no_node_offers_is_refused(self):
        for options in ({"gpus": 3}, {"resources": {"fish": 1}}, {"labels": "fast"}):
            with self.assertRaisesRegex(starling.ClusterError, "no node offers that"):
                self.client.options(**options).submit(devices)
        self.assertEqual(self.client.submit(len, "abc").result(WAIT), 3)
