# The recipe of Clearway for Spack. `cargo xtask dist` sets the version and the commit; put the result into
# packages/clearway/package.py of a repository of recipes.

from spack.package import *


class Clearway(Package):
    """Traffic classes, data movement and OpenSHMEM for shared cluster networks."""

    homepage = "https://github.com/clearway/clearway"
    git = "https://github.com/clearway/clearway.git"

    license("Apache-2.0 OR MIT")

    # Versions are tags. The commit fixes what is built, so that no archive and no sha256 is needed; it is the one that the
    # packages of this version were made of.
    version("main", branch="main")
    version("@VERSION@", tag="v@VERSION@", commit="@COMMIT@")

    # Each is loaded or asked at run time, and nothing is linked to it.
    variant("libfabric", default=True, description="Find libfabric: InfiniBand, Slingshot, EFA, Omni-Path")
    variant("munge", default=False, description="Have munge for credentials of users and ranks")
    variant("pmix", default=True, description="Find PMIx, by which launchers start ranks")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("libfabric", type="run", when="+libfabric")
    depends_on("munge", type="run", when="+munge")
    depends_on("pmix@3:", type="run", when="+pmix")

    requires("platform=linux", msg="Clearway runs on Linux")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("xtask", "install", "--prefix", prefix)

    def setup_run_environment(self, env):
        for library in ("libfabric", "pmix"):
            if self.spec.satisfies(f"+{library}"):
                env.prepend_path("LD_LIBRARY_PATH", self.spec[library].prefix.lib)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        clearway = Executable(self.prefix.bin.clearway)
        clearway("run", "incast", "--on", "sim", "--out", "install-check")
