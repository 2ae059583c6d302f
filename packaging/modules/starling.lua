-- A module file of Lmod. Its folder is <prefix>/modules, beside the unpacked tarball:
--   <prefix>/starling-0.1.0-x86_64-linux and <prefix>/modules/starling/0.1.0.lua
help([[Starling runs workflows on a cluster without a central node.]])
whatis("Name: Starling")
whatis("Description: runs workflows on a cluster without a central node")
local here = myFileName():match("(.*)/modules/starling/[^/]*$")
local base = pathJoin(here, "starling-" .. myModuleVersion() .. "-x86_64-linux")
prepend_path("PATH", pathJoin(base, "bin"))
prepend_path("MANPATH", pathJoin(base, "share/man"))
