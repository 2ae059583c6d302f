/*!
Reads the variables that a parallel launcher sets for its processes: Slurm, Open MPI, MPICH, PALS,
Flux and the others in `KINDS`.

```
use daemon::launcher::detect;
let env = |name: &str| match name {
    "SLURM_PROCID" => Some("2".to_owned()),
    "SLURM_NTASKS" => Some("4".to_owned()),
    "SLURM_JOB_ID" => Some("17".to_owned()),
    "SLURM_STEP_ID" => Some("0".to_owned()),
    _ => None,
};
let launcher = detect(env).unwrap().expect("Slurm's variables are there");
assert_eq!((launcher.rank, launcher.size, launcher.launch.as_str()), (2, 4, "slurm-17.0"));
```
*/

use std::collections::BTreeSet;

/// The place of this process in its launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launcher {
    /// As `Kind::name`.
    pub name: &'static str,
    pub rank: u32,
    pub size: u32,
    /// Distinguishes this launch from others in the same directory; empty if the launcher gives no
    /// name.
    pub launch: String,
    /// The number of the launch's processes on this machine, if the launcher gives it.
    pub local_size: Option<u32>,
    /// The number of the launch's machines, if the launcher gives it.
    pub hosts: Option<u32>,
}

impl Launcher {
    /// True if all processes are known to be on one machine.
    #[must_use]
    pub fn is_on_one_host(&self) -> bool {
        self.size == 1 || self.hosts == Some(1) || self.local_size == Some(self.size)
    }
}

/// A launcher's variables were found, but some are missing or wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this process was started by {name} ({variable}={value}), but {problem}")]
pub struct NotUnderstood {
    pub name: &'static str,
    pub variable: &'static str,
    pub value: String,
    pub problem: String,
    /// The rank of the process, if that is a number.
    pub rank: Option<u32>,
}

/// The variables of one launcher. Of several names the first one that is set counts.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// A variable that must be set too, unless empty.
    beside: &'static str,
    rank: &'static str,
    size: &'static [&'static str],
    local_size: &'static [&'static str],
    hosts: &'static [&'static str],
    /// The prefix of the launch's identifier.
    prefix: &'static str,
    launch: &'static [&'static str],
}

/// In the order of detection: a launcher that another one starts comes first. `mpirun` inside a
/// Slurm allocation sets its own variables. Those of Slurm then describe the daemon that `mpirun`
/// started on the machine.
const KINDS: &[Kind] = &[
    Kind {
        name: "open mpi",
        beside: "",
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        hosts: &[],
        prefix: "ompi",
        launch: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"],
    },
    Kind {
        name: "mvapich",
        beside: "",
        rank: "MV2_COMM_WORLD_RANK",
        size: &["MV2_COMM_WORLD_SIZE"],
        local_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        hosts: &[],
        prefix: "mv2",
        launch: &["PMI_JOBID"],
    },
    // Hydra, of MPICH and Intel MPI.
    Kind {
        name: "mpich",
        beside: "MPI_LOCALNRANKS",
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_size: &["MPI_LOCALNRANKS"],
        hosts: &[],
        prefix: "pmi",
        launch: &["PMI_JOBID"],
    },
    Kind {
        name: "pals",
        beside: "",
        rank: "PALS_RANKID",
        size: &["PALS_SIZE", "PMI_SIZE"],
        local_size: &["PALS_LOCAL_SIZE"],
        hosts: &[],
        prefix: "pals",
        launch: &["PALS_APID"],
    },
    Kind {
        name: "flux",
        beside: "",
        rank: "FLUX_TASK_RANK",
        size: &["FLUX_JOB_SIZE"],
        local_size: &[],
        hosts: &["FLUX_JOB_NNODES"],
        prefix: "flux",
        launch: &["FLUX_JOB_ID"],
    },
    Kind {
        name: "jsrun",
        beside: "",
        rank: "JSM_NAMESPACE_RANK",
        size: &["JSM_NAMESPACE_SIZE"],
        local_size: &["JSM_NAMESPACE_LOCAL_SIZE"],
        hosts: &[],
        prefix: "jsm",
        launch: &["LSB_JOBID"],
    },
    // Within a step SLURM_STEP_NUM_TASKS is the step's own; SLURM_NTASKS may be the allocation's.
    Kind {
        name: "slurm",
        beside: "",
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_size: &[],
        hosts: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"],
        prefix: "slurm",
        launch: &["SLURM_JOB_ID", "SLURM_JOBID"],
    },
    Kind {
        name: "pmi",
        beside: "",
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_size: &["PMI_LOCAL_SIZE"],
        hosts: &[],
        prefix: "pmi",
        launch: &["PMI_JOBID"],
    },
    Kind {
        name: "pmix",
        beside: "",
        rank: "PMIX_RANK",
        size: &["PMIX_SIZE"],
        local_size: &["PMIX_LOCAL_SIZE"],
        hosts: &[],
        prefix: "pmix",
        launch: &["PMIX_NAMESPACE"],
    },
    // This launcher does not give the number of processes.
    Kind {
        name: "aprun",
        beside: "",
        rank: "ALPS_APP_PE",
        size: &[],
        local_size: &[],
        hosts: &[],
        prefix: "alps",
        launch: &["ALPS_APP_ID"],
    },
];

/// Looks for a launcher's variables.
///
/// # Errors
/// A launcher was found with variables that are wrong or lack the number of processes.
pub fn detect(env: impl Fn(&str) -> Option<String>) -> Result<Option<Launcher>, NotUnderstood> {
    let is_there = |name: &str| name.is_empty() || env(name).is_some();
    let found = KINDS.iter().filter(|kind| is_there(kind.beside) && is_there(kind.rank));
    let mut first = None;
    for kind in found {
        match kind.understand(&env) {
            Ok(launcher) => return Ok(Some(launcher)),
            // The variables of another kind may be complete.
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    first.map_or(Ok(None), Err)
}

/// [`detect`] on the environment of this process.
pub fn detect_here() -> Result<Option<Launcher>, NotUnderstood> {
    detect(|name| std::env::var(name).ok())
}

fn number(env: &impl Fn(&str) -> Option<String>, name: &str) -> Option<u32> {
    env(name)?.trim().parse().ok()
}

impl Kind {
    fn understand(&self, env: &impl Fn(&str) -> Option<String>) -> Result<Launcher, NotUnderstood> {
        let first = |names: &[&str]| names.iter().find_map(|name| number(env, name));
        let value = env(self.rank).unwrap_or_default();
        let rank = value.trim().parse().ok();
        let wrong = |problem: String| {
            let (name, variable, value) = (self.name, self.rank, value.clone());
            Err(NotUnderstood { name, variable, value, problem, rank })
        };
        let Some(rank) = rank else { return wrong("that is no rank".to_owned()) };
        let local_size = first(self.local_size).or_else(|| self.local_size_of_slurm(env));
        let hosts = first(self.hosts).or_else(|| self.hosts_by_list(env));
        // With uneven ranks this differs from rank to rank, so it is used only if nothing else
        // gives the size.
        let by_hosts = || match self.name {
            "pals" => local_size?.checked_mul(hosts?),
            _ => None,
        };
        let Some(size) = first(self.size).or_else(by_hosts) else {
            return wrong(self.no_size());
        };
        if rank >= size {
            return wrong(format!("there are {size} processes only"));
        }
        let even = || hosts.filter(|&hosts| hosts > 0 && size % hosts == 0).map(|it| size / it);
        let local_size = local_size.or_else(even).filter(|it| (1..=size).contains(it));
        // A launch id becomes part of a file's text, never of a path. Its length is bounded anyway.
        let id = self.launch.iter().find_map(|name| env(name));
        let step = match (self.name, &id) {
            ("slurm", Some(_)) => {
                let step = env("SLURM_STEP_ID").or_else(|| env("SLURM_STEPID"));
                // A requeued job keeps its number, so the restart count is added.
                let restart = env("SLURM_RESTART_COUNT").filter(|it| it != "0");
                let restart = restart.map(|it| format!(".r{it}")).unwrap_or_default();
                format!(".{}{restart}", step.unwrap_or_default())
            }
            _ => String::new(),
        };
        let launch = id.map(|id| format!("{}-{id}{step}", self.prefix)).unwrap_or_default();
        let launch = launch.chars().take(256).collect();
        Ok(Launcher { name: self.name, rank, size, launch, local_size, hosts })
    }

    fn no_size(&self) -> String {
        match (self.name, self.size) {
            ("pals", _) => {
                "neither PALS_SIZE nor PMI_SIZE nor PALS_LOCAL_SIZE and PBS_NODEFILE say how many \
                            processes there are"
                    .to_owned()
            }
            (_, []) => "it does not say how many processes there are".to_owned(),
            (_, names) => format!("{} does not say how many processes there are", names.join(", ")),
        }
    }

    /// The number of machines in the launcher's list of them, if there is one.
    fn hosts_by_list(&self, env: &impl Fn(&str) -> Option<String>) -> Option<u32> {
        match self.name {
            "pals" => {
                let text = std::fs::read_to_string(env("PBS_NODEFILE")?).ok()?;
                let hosts = text.lines().map(str::trim).filter(|line| !line.is_empty());
                Some(hosts.collect::<BTreeSet<_>>().len() as u32).filter(|&hosts| hosts > 0)
            }
            // For more than one machine the number is not needed.
            "slurm" => {
                let names = ["SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"];
                let list = names.iter().find_map(|name| env(name))?;
                let is_one = !list.is_empty() && !list.contains([',', '[']);
                is_one.then_some(1)
            }
            _ => None,
        }
    }

    /// Slurm lists the processes of each machine: "2(x3),1".
    fn local_size_of_slurm(&self, env: &impl Fn(&str) -> Option<String>) -> Option<u32> {
        if self.name != "slurm" {
            return None;
        }
        let list = env("SLURM_STEP_TASKS_PER_NODE").or_else(|| env("SLURM_TASKS_PER_NODE"))?;
        let mut at = number(env, "SLURM_NODEID")?;
        for run in list.split(',') {
            let (tasks, times) = match run.split_once("(x") {
                Some((tasks, times)) => (tasks, times.trim_end_matches(')').parse().ok()?),
                None => (run, 1),
            };
            match at.checked_sub(times) {
                Some(left) => at = left,
                None => return tasks.trim().parse().ok(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_with(pairs: &[(&str, &str)]) -> Result<Option<Launcher>, NotUnderstood> {
        detect(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    fn with(pairs: &[(&str, &str)]) -> Launcher {
        try_with(pairs).unwrap().expect("a launcher")
    }

    #[test]
    fn open_mpi_inside_slurm_wins() {
        let found = with(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-host-77@1"),
        ]);
        assert_eq!((found.name, found.rank, found.size), ("open mpi", 3, 4));
        assert_eq!(found.launch, "ompi-prterun-host-77@1");
        assert!(found.is_on_one_host());
    }

    #[test]
    fn the_steps_own_size_counts_in_slurm() {
        let step = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_JOB_ID", "5"),
            ("SLURM_STEP_ID", "3"),
        ];
        let found = with(&step);
        assert_eq!((found.rank, found.size, found.launch.as_str()), (1, 2, "slurm-5.3"));
        assert!(!found.is_on_one_host(), "nothing says so");
        let again = with(&[&step[..], &[("SLURM_RESTART_COUNT", "2")]].concat());
        assert_eq!(again.launch, "slurm-5.3.r2", "it was put back into the queue");
        let on = |name, value| with(&[&step[..], &[(name, value)]].concat());
        assert!(on("SLURM_STEP_NUM_NODES", "1").is_on_one_host());
        assert_eq!(on("SLURM_STEP_NUM_NODES", "2").local_size, Some(1));
        assert!(on("SLURM_NODELIST", "login1").is_on_one_host());
        assert!(!on("SLURM_NODELIST", "nid[01-02]").is_on_one_host());
        assert!(!on("SLURM_NODELIST", "nid01,nid07").is_on_one_host());
    }

    #[test]
    fn slurm_lists_the_tasks_of_each_machine() {
        let of = |machine| {
            with(&[
                ("SLURM_PROCID", "1"),
                ("SLURM_NTASKS", "9"),
                ("SLURM_NODEID", machine),
                ("SLURM_STEP_TASKS_PER_NODE", "2(x3),3"),
            ])
            .local_size
        };
        assert_eq!([of("0"), of("2"), of("3"), of("4")], [Some(2), Some(2), Some(3), None]);
    }

    #[test]
    fn mpich_pmi_and_pmix() {
        let found = with(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        assert_eq!((found.name, found.rank, found.size), ("pmi", 0, 2));
        let found = with(&[("PMIX_RANK", "1"), ("PMIX_SIZE", "2")]);
        assert_eq!((found.name, found.rank, found.size), ("pmix", 1, 2));
        // Hydra inside Slurm: Slurm's variables are those of Hydra's own process on the machine.
        let found = with(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
            ("PMI_RANK", "5"),
            ("PMI_SIZE", "8"),
            ("MPI_LOCALNRANKS", "4"),
        ]);
        assert_eq!((found.name, found.rank, found.size), ("mpich", 5, 8));
        assert_eq!(found.local_size, Some(4));
    }

    #[test]
    fn pals_gives_the_size_or_the_input_of_its_computation() {
        let found = with(&[("PALS_RANKID", "3"), ("PALS_SIZE", "4"), ("PALS_APID", "a-1")]);
        assert_eq!((found.name, found.rank, found.size), ("pals", 3, 4));
        assert_eq!(found.launch, "pals-a-1");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "x1\nx1\nx2\n\n").unwrap();
        let file = file.path().to_str().unwrap();
        let found = with(&[("PALS_RANKID", "3"), ("PALS_LOCAL_SIZE", "2"), ("PBS_NODEFILE", file)]);
        assert_eq!((found.size, found.local_size, found.hosts), (4, Some(2), Some(2)));
        assert!(!found.is_on_one_host());
        let uneven = [
            ("PALS_RANKID", "4"),
            ("PALS_LOCAL_SIZE", "2"),
            ("PMI_RANK", "4"),
            ("PMI_SIZE", "5"),
            ("PBS_NODEFILE", file),
        ];
        let found = with(&uneven);
        assert_eq!((found.name, found.rank, found.size), ("pals", 4, 5));
        let many = u32::MAX.to_string();
        let many = [("PALS_RANKID", "3"), ("PALS_LOCAL_SIZE", &many), ("PBS_NODEFILE", file)];
        assert!(try_with(&many).is_err());
        let error = try_with(&[("PALS_RANKID", "3"), ("PALS_LOCAL_SIZE", "2")]).unwrap_err();
        assert!(error.to_string().contains("PBS_NODEFILE"), "{error}");
    }

    #[test]
    fn what_one_kind_leaves_open_a_later_one_tells() {
        let found = with(&[("FLUX_TASK_RANK", "1"), ("PMI_RANK", "1"), ("PMI_SIZE", "3")]);
        assert_eq!((found.name, found.rank, found.size), ("pmi", 1, 3));
        let error = try_with(&[("FLUX_TASK_RANK", "1"), ("PMI_RANK", "1")]).unwrap_err();
        assert_eq!(error.name, "flux", "the first is named");
    }

    #[test]
    fn flux_gives_every_value() {
        let found = with(&[
            ("FLUX_TASK_RANK", "2"),
            ("FLUX_JOB_SIZE", "6"),
            ("FLUX_JOB_NNODES", "3"),
            ("FLUX_JOB_ID", "f7"),
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "6"),
        ]);
        assert_eq!((found.name, found.rank, found.size), ("flux", 2, 6));
        assert_eq!((found.local_size, found.launch.as_str()), (Some(2), "flux-f7"));
    }

    #[test]
    fn one_that_is_seen_and_not_understood_is_named() {
        assert_eq!(try_with(&[]), Ok(None));
        assert_eq!(try_with(&[("SLURM_NTASKS", "4")]), Ok(None), "an allocation is no launch");
        let text = |pairs: &[(&str, &str)]| try_with(pairs).unwrap_err().to_string();
        assert!(text(&[("SLURM_PROCID", "4"), ("SLURM_NTASKS", "4")]).contains("slurm"));
        assert!(text(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]).contains("PMI_RANK=x"));
        assert!(text(&[("FLUX_TASK_RANK", "1")]).contains("FLUX_JOB_SIZE"));
        assert!(text(&[("ALPS_APP_PE", "1")]).contains("aprun"));
        assert_eq!(try_with(&[("PMIX_RANK", "1")]).unwrap_err().rank, Some(1));
    }
}
