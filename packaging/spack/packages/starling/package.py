# spack repo add packaging/spack; spack install starling
#
# The tarball of scripts/dist is looked up in the current directory.
import os

from spack.package import *


class Starling(Package):
    """Runs workflows on a cluster without a central node."""

    license("Apache-2.0")
    url = f"file://{os.getcwd()}/starling-0.1.0-x86_64-linux.tar.gz"

    # `spack checksum starling` adds the sum of a tarball, which SHA256SUMS has.
    version("0.1.0")

    conflicts("platform=darwin", msg="Starling runs on Linux")
    conflicts("target=aarch64:", msg="this tarball is for x86_64")

    def install(self, spec, prefix):
        install_tree("bin", prefix.bin)
        install_tree("share", prefix.share)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.starling)("--version")
