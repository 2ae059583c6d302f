//! A cluster of this machine that ends with the program.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Error, Result};

/// Starts the nodes, and stops them when its standard input ends, however this program has ended.
const KEEPER: &str = r#"
trap '' INT HUP TERM
binary=$1 directory=$2
shift 2
"$binary" up "$@" --dir "$directory/cluster" </dev/null >/dev/null 2>"$directory/up"
echo $?
exec >/dev/null 2>&1
cat
"$binary" down --dir "$directory/cluster" </dev/null
rm -rf "$directory"
"#;

/// Nodes of this machine in a directory of their own.
#[derive(Debug)]
pub(crate) struct LocalCluster {
    keeper: Child,
    directory: PathBuf,
}

impl LocalCluster {
    pub(crate) fn start(nodes: u32, slots: Option<u32>) -> Result<Self> {
        let binary = find_binary()?;
        let failed =
            |what: &str, error: &dyn std::fmt::Display| Error::Program(format!("{what}: {error}"));
        let directory = tempfile::Builder::new().prefix("starling-local-").tempdir();
        let directory = directory.map_err(|error| failed("no directory for a cluster", &error))?;
        let directory = directory.keep();
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&binary).arg(&directory);
        command.args(["--nodes", &nodes.to_string()]);
        if let Some(slots) = slots {
            command.args(["--slots", &slots.to_string()]);
        }
        let keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let keeper = keeper.map_err(|error| failed("sh", &error))?;
        let mut local = Self { keeper, directory };
        let mut code = String::new();
        if let Some(stdout) = local.keeper.stdout.take() {
            // An error reads as no code.
            let _ = BufReader::new(stdout).read_line(&mut code);
        }
        if code.trim() == "0" {
            return Ok(local);
        }
        let text = std::fs::read_to_string(local.directory.join("up")).unwrap_or_default();
        let text = text.trim().replace('\n', "; ");
        Err(failed(&format!("{} up", binary.display()), &text))
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.directory.join("cluster")
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It removes the directory last.
        let _ = self.keeper.wait();
    }
}

/// The program `starling`: named by `STARLING_BINARY`, beside this program, or in `PATH`.
fn find_binary() -> Result<PathBuf> {
    let is_program = |path: &Path| {
        let metadata = path.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if let Some(named) = std::env::var_os("STARLING_BINARY") {
        let path = PathBuf::from(named);
        return match is_program(&path) {
            true => Ok(path),
            false => Err(Error::Program(format!(
                "STARLING_BINARY is {}, which is no program",
                path.display()
            ))),
        };
    }
    let own = std::env::current_exe().unwrap_or_default();
    // Examples and tests lie in a folder below the other programs.
    let beside = own.ancestors().skip(1).take(2).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = beside.chain(std::env::split_paths(&path)).map(|dir| dir.join("starling"));
    places.find(|place| is_program(place)).ok_or_else(|| {
        let text = "no cluster runs here, and no program `starling` to start one is beside this \
                    program or in PATH; start a cluster with `starling up`, or name the program \
                    in STARLING_BINARY";
        Error::Program(text.to_owned())
    })
}
