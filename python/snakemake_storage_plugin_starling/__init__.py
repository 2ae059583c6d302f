"""Files of Snakemake as kept outputs of Starling: `snakemake --default-storage-provider starling`.

docs/python-adapters.md has how it is used, and what does not map.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, List, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_storage_plugins.io import IOCacheStorageInterface, Mtime
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_object import (
    StorageObjectGlob,
    StorageObjectRead,
    StorageObjectTouch,
    StorageObjectWrite,
)
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    Operation,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)

from ._objects import NAME_BYTES_MAX, Entry, Objects, StoreError, directory_of

SCHEME = "starling://"
COPIES_MAX = 5


@dataclass
class StorageProviderSettings(StorageProviderSettingsBase):
    dir: Optional[str] = field(
        default=None,
        metadata={
            "help": "Directory of the instance; default: as the starling program has it. "
            "On a node it is the directory of that node."
        },
    )
    copies: Optional[int] = field(
        default=None,
        metadata={
            "help": "Nodes that have each file before it counts as stored, 1 to 5; default: as "
            "many as the cluster has replicas of a record.",
            "type": int,
        },
    )


class StorageProvider(StorageProviderBase):
    objects: Objects

    def __post_init__(self) -> None:
        settings = self.settings or StorageProviderSettings()
        copies = settings.copies
        if copies is not None and not 1 <= copies <= COPIES_MAX:
            text = "--storage-starling-copies is %d, and has to be 1 to %d"
            raise WorkflowError(text % (copies, COPIES_MAX))
        self.objects = Objects(directory_of(settings.dir), copies)

    @classmethod
    def example_queries(cls) -> List[ExampleQuery]:
        text = "A file of the name project/reads.bam on the nodes of the cluster"
        return [ExampleQuery(SCHEME + "project/reads.bam", text, QueryType.ANY)]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        return "starling"

    def default_max_requests_per_second(self) -> float:
        return 1000.0

    def use_rate_limiter(self) -> bool:
        return False

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        reason = _invalid(query)
        return StorageQueryValidationResult(query=query, valid=reason is None, reason=reason)

    def postprocess_query(self, query: str) -> str:
        # A path of the workflow, if no prefix was given.
        return SCHEME + query if self.is_default and "://" not in query else query


def _invalid(query: str) -> Optional[str]:
    if not query.startswith(SCHEME):
        return "it does not begin with " + SCHEME
    name = query[len(SCHEME) :]
    if name.startswith("/"):
        return 'an absolute path is no name of an object; write local("%s") for a file' % name
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        return "a name of an object has parts such as a/b, without '.' and '..'"
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        return "a name of an object has at most %d bytes" % NAME_BYTES_MAX
    return None


class StorageObject(StorageObjectRead, StorageObjectWrite, StorageObjectGlob, StorageObjectTouch):
    provider: StorageProvider

    @property
    def name(self) -> str:
        name: str = self.query[len(SCHEME) :]
        return name

    def local_suffix(self) -> str:
        return self.name

    def get_inventory_parent(self) -> Optional[str]:
        return None

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """One question to the cluster instead of one for each property."""
        key = self.cache_key()
        if key in cache.exists_in_storage:
            return
        entry = self.provider.objects.find(self.name)
        cache.exists_in_storage[key] = entry is not None
        if entry is not None:
            cache.mtime[key] = Mtime(storage=entry.mtime)
            cache.size[key] = _size(entry)
            if hasattr(cache, "checksum"):
                cache.checksum[key] = entry.checksum

    def _entry(self) -> Entry:
        entry = self.provider.objects.find(self.name)
        if entry is None:
            raise StoreError("the cluster has no object %s" % self.query)
        return entry

    def exists(self) -> bool:
        return self.provider.objects.find(self.name) is not None

    def mtime(self) -> float:
        return self._entry().mtime

    def size(self) -> int:
        return _size(self._entry())

    def checksum(self) -> Optional[str]:
        return self._entry().checksum

    def local_footprint(self) -> int:
        return self._entry().size

    def retrieve_object(self) -> None:
        self.provider.objects.fetch(self.name, self.local_path())

    def store_object(self) -> None:
        self.provider.objects.store(self.name, self.local_path())

    def remove(self) -> None:
        self.provider.objects.remove(self.name)

    def touch(self) -> None:
        self.provider.objects.touch(self.name)

    def list_candidate_matches(self) -> Iterable[str]:
        text = "the names of objects cannot be listed, as glob_wildcards does with %s; "
        raise StoreError((text + "take the wildcards from a table or a configuration") % self.query)

    def cleanup(self) -> None:
        """Nothing lies beside the local copy."""


def _size(entry: Entry) -> int:
    """As the interface wants it."""
    return 0 if entry.is_directory else entry.size
