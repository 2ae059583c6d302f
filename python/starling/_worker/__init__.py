"""The worker: runs function calls of a node, and its zygote forks workers.

The protocol is in docs/worker-protocol.md. This package and `starling._cloudpickle` are packed
into worker.zip, which the node carries. It needs Python 3.8 or later and nothing else.
"""
