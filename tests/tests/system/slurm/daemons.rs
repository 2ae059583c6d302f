//! Slurm's own daemons, and munge.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use starling_tests::{Running, Sandbox, skip, wait_until};

/// The daemons. Debian installs them outside a user's PATH.
pub(super) struct Programs {
    munged: PathBuf,
    slurmctld: PathBuf,
    slurmd: PathBuf,
}

impl Programs {
    /// `None`, with a printed reason, if Slurm cannot run.
    pub(super) fn find() -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            skip("Slurm's daemons want to be root here");
            return None;
        }
        let find = |name: &str| {
            let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
            let found = folders.iter().map(|folder| Path::new(folder).join(name));
            let found = found.into_iter().find(|path| path.exists());
            if found.is_none() {
                skip(&format!("{name} is not installed (scripts/install-launchers)"));
            }
            found
        };
        find("srun")?;
        Some(Self {
            munged: find("munged")?,
            slurmctld: find("slurmctld")?,
            slurmd: find("slurmd")?,
        })
    }
}

/// The daemons run in the foreground as our children, so that they end with the test.
pub(super) struct Slurm {
    configuration: PathBuf,
    /// Munge first, then the controller, then the nodes.
    daemons: Vec<Running>,
}

impl Slurm {
    pub(super) fn start(sandbox: &Sandbox, programs: &Programs) -> Self {
        let folder = sandbox.path("slurm");
        fs::create_dir_all(folder.join("state")).expect("folders can be made");
        let socket = folder.join("munge.sock");
        let munged = start_munge(sandbox, &programs.munged, &folder);
        wait_until("munge listens", || socket.exists());

        let configuration = folder.join("slurm.conf");
        fs::write(&configuration, slurm_conf(&folder)).expect("files can be written");
        let daemon = |program: &Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.env("SLURM_CONF", &configuration).args(arguments);
            sandbox.start_command(command)
        };
        let mut daemons = vec![munged, daemon(&programs.slurmctld, &["-D", "-c"])];
        for node in 1..=4 {
            let name = format!("n{node}");
            fs::create_dir_all(folder.join(format!("spool.{name}"))).expect("folders can be made");
            daemons.push(daemon(&programs.slurmd, &["-D", "-N", &name]));
        }
        wait_until("four Slurm nodes are idle", || {
            let mut sinfo = Command::new("sinfo");
            sinfo.env("SLURM_CONF", &configuration).args(["-h", "-N", "-o", "%T"]);
            let ran = sandbox.start_command(sinfo).end();
            ran.code == 0 && ran.stdout.lines().filter(|line| *line == "idle").count() == 4
        });
        Self { configuration, daemons }
    }

    /// A Slurm program, or a command that uses one.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", &self.configuration);
        command
    }

    /// Kills the daemons in order after the step processes of our ranks have ended. Step processes
    /// have their own sessions and would wait for their daemon without end. On a busy machine
    /// slurmd may hang on SIGTERM.
    pub(super) fn end(self) {
        wait_until("Slurm's step has ended", || !self.has_steps());
        for daemon in self.daemons.into_iter().rev() {
            daemon.signal(Signal::KILL);
            daemon.end();
        }
    }

    fn has_steps(&self) -> bool {
        let ours = self.configuration.display().to_string();
        let processes = fs::read_dir("/proc").expect("Linux has it").flatten();
        let mut processes = processes.map(|entry| entry.path());
        processes.any(|process| {
            let read = |name: &str| fs::read(process.join(name)).unwrap_or_default();
            let contains = |bytes: &[u8], text: &str| {
                bytes.windows(text.len()).any(|window| window == text.as_bytes())
            };
            contains(&read("cmdline"), "slurmstepd") && contains(&read("environ"), &ours)
        })
    }
}

fn start_munge(sandbox: &Sandbox, munged: &Path, folder: &Path) -> Running {
    let key = folder.join("munge.key");
    fs::write(&key, random_bytes()).expect("files can be written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).expect("it is ours");
    // Munge's clients require that others may enter the folders of the socket.
    fs::set_permissions(sandbox.path("."), fs::Permissions::from_mode(0o755)).expect("ours");
    let mut command = Command::new(munged);
    command.args(["--force", "--foreground"]);
    for (flag, file) in [
        ("--socket", "munge.sock"),
        ("--key-file", "munge.key"),
        ("--pid-file", "munged.pid"),
        ("--log-file", "munged.log"),
        ("--seed-file", "munged.seed"),
    ] {
        command.arg(format!("{flag}={}", folder.join(file).display()));
    }
    sandbox.start_command(command)
}

fn random_bytes() -> Vec<u8> {
    use std::io::Read;
    let mut bytes = vec![0; 1024];
    let mut source = fs::File::open("/dev/urandom").expect("every Linux has it");
    source.read_exact(&mut bytes).expect("it never ends");
    bytes
}

fn slurm_conf(folder: &Path) -> String {
    let host = Command::new("hostname").arg("-s").output().expect("hostname runs").stdout;
    let host = String::from_utf8_lossy(&host).trim().to_owned();
    let folder = folder.display();
    let ports = free_ports(5);
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\n\
         SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
         AuthInfo=socket={folder}/munge.sock\n\
         CredType=cred/munge\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
         MpiDefault=none\nReturnToService=2\nStateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool.%n\nSlurmdPidFile={folder}/slurmd.%n.pid\n\
         SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdLogFile={folder}/slurmd.%n.log\n\
         SlurmctldLogFile={folder}/slurmctld.log\nSchedulerType=sched/builtin\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
         AccountingStorageType=accounting_storage/none\n\
         JobAcctGatherType=jobacct_gather/none\nJobCompType=jobcomp/none\n\
         SlurmdParameters=config_overrides\nKillWait=5\nOverTimeLimit=0\n",
        ports[0]
    );
    for (node, port) in ports.iter().enumerate().skip(1) {
        writeln!(
            text,
            "NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 \
             RealMemory=1000 State=UNKNOWN"
        )
        .expect("a string takes all");
    }
    text.push_str("PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    text
}

/// Currently free ports. Slurm needs the numbers in advance, so a race remains.
fn free_ports(count: usize) -> Vec<u16> {
    let bound: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    bound.iter().map(|socket| socket.local_addr().expect("it is bound").port()).collect()
}
