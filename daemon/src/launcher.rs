/*!
What a parallel launcher tells the processes it starts: Slurm, Open MPI and whatever speaks PMI.

```
use daemon::launcher::detect;
let env = |name: &str| match name {
    "SLURM_PROCID" => Some("2".to_owned()),
    "SLURM_NTASKS" => Some("4".to_owned()),
    "SLURM_JOB_ID" => Some("17".to_owned()),
    "SLURM_STEP_ID" => Some("0".to_owned()),
    _ => None,
};
let launcher = detect(env).expect("Slurm's variables are there");
assert_eq!((launcher.rank, launcher.size, launcher.launch.as_str()), (2, 4, "slurm-17.0"));
```
*/

/// This process's place among those that were launched together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launcher {
    /// Whose variables were found: `slurm`, `open mpi`, `pmi`, `pmix`.
    pub name: &'static str,
    pub rank: u32,
    pub size: u32,
    /// Tells this launch from any other in the same directory; empty when the launcher names none.
    pub launch: String,
}

/// Looks for a launcher's variables. Open MPI comes first: `mpirun` inside a Slurm allocation sets
/// both, and then Slurm's describe the daemon that `mpirun` started on the node.
pub fn detect(env: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    open_mpi(&env).or_else(|| slurm(&env)).or_else(|| pmi(&env))
}

/// [`detect`] on the environment of this process.
#[must_use]
pub fn detect_here() -> Option<Launcher> {
    detect(|name| std::env::var(name).ok())
}

fn number(env: &impl Fn(&str) -> Option<String>, name: &str) -> Option<u32> {
    env(name)?.trim().parse().ok()
}

fn made(name: &'static str, rank: u32, size: u32, launch: Option<String>) -> Option<Launcher> {
    // A launch id becomes part of a file's text, never of a path; the length is bounded all the
    // same.
    let launch: String = launch.unwrap_or_default().chars().take(256).collect();
    (rank < size).then_some(Launcher { name, rank, size, launch })
}

fn open_mpi(env: &impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    let rank = number(env, "OMPI_COMM_WORLD_RANK")?;
    let size = number(env, "OMPI_COMM_WORLD_SIZE")?;
    let launch = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"]
        .into_iter()
        .find_map(env)
        .map(|id| format!("ompi-{id}"));
    made("open mpi", rank, size, launch)
}

fn slurm(env: &impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    let rank = number(env, "SLURM_PROCID")?;
    // Within a step SLURM_STEP_NUM_TASKS is the step's own; SLURM_NTASKS may be the allocation's.
    let size = number(env, "SLURM_STEP_NUM_TASKS").or_else(|| number(env, "SLURM_NTASKS"))?;
    let job = env("SLURM_JOB_ID").or_else(|| env("SLURM_JOBID"));
    let step = env("SLURM_STEP_ID").or_else(|| env("SLURM_STEPID"));
    let launch = job.map(|job| format!("slurm-{job}.{}", step.unwrap_or_default()));
    made("slurm", rank, size, launch)
}

fn pmi(env: &impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    if let (Some(rank), Some(size)) = (number(env, "PMI_RANK"), number(env, "PMI_SIZE")) {
        return made("pmi", rank, size, env("PMI_JOBID").map(|id| format!("pmi-{id}")));
    }
    let rank = number(env, "PMIX_RANK")?;
    let size = number(env, "PMIX_SIZE")?;
    made("pmix", rank, size, env("PMIX_NAMESPACE").map(|id| format!("pmix-{id}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Option<Launcher> {
        detect(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn open_mpi_inside_slurm_wins() {
        let found = with(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-host-77@1"),
        ])
        .unwrap();
        assert_eq!((found.name, found.rank, found.size), ("open mpi", 3, 4));
        assert_eq!(found.launch, "ompi-prterun-host-77@1");
    }

    #[test]
    fn the_steps_own_size_counts_in_slurm() {
        let found = with(&[
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_JOB_ID", "5"),
            ("SLURM_STEP_ID", "3"),
        ])
        .unwrap();
        assert_eq!((found.rank, found.size, found.launch.as_str()), (1, 2, "slurm-5.3"));
    }

    #[test]
    fn pmi_and_pmix() {
        let found = with(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]).unwrap();
        assert_eq!((found.name, found.rank, found.size), ("pmi", 0, 2));
        let found = with(&[("PMIX_RANK", "1"), ("PMIX_SIZE", "2")]).unwrap();
        assert_eq!((found.name, found.rank, found.size), ("pmix", 1, 2));
    }

    #[test]
    fn nothing_or_nonsense_is_no_launcher() {
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("SLURM_PROCID", "4"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(with(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]), None);
        assert_eq!(with(&[("PMIX_RANK", "1")]), None);
    }
}
