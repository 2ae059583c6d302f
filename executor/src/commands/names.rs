//! File names of tasks: they must stay inside the task's directory.

use std::path::{Component, Path, PathBuf};

/// The path of a name below a task's directory, or the reason why it is invalid.
pub(crate) fn inside(name: &str) -> Result<PathBuf, String> {
    let wrong = |why: &str| Err(format!("file name '{name}' {why}"));
    let mut path = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => return wrong("must not contain '..'"),
            Component::RootDir | Component::Prefix(_) => return wrong("must be relative"),
        }
    }
    if path.as_os_str().is_empty() {
        return wrong("is empty");
    }
    if name.contains('\0') {
        return wrong("contains a zero byte");
    }
    Ok(path)
}

/// A key as part of the name of an environment variable.
pub(crate) fn variable(prefix: &str, key: &str) -> String {
    let letters = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    prefix.chars().chain(letters).collect()
}

/// True if a variable of the node's own environment is hidden from tasks.
///
/// Hidden are the variables of the launcher's step, which describe the node's own process.
/// Otherwise an `srun` or an MPI program of a task would look like a rank of that step. The
/// variables of the allocation stay, so that `srun` and `squeue` in a task act on it. The settings
/// of Starling are for the node only. With `hides_slurm` Slurm's allocation is hidden as well.
pub(crate) fn is_hidden_variable(name: &str, hides_slurm: bool) -> bool {
    const PREFIXES: &[&str] = &[
        "STARLING_",
        "SLURM_STEP",
        "SLURM_CPU_BIND",
        "SLURM_SRUN_",
        "SLURM_LAUNCH_",
        "PMI",
        "PALS_",
        "FLUX_TASK_",
        "FLUX_PMI_",
        "PRTE_",
        "HYDRA_",
        "HYDI_",
        "I_MPI_HYDRA",
        "MPI_LOCAL",
        "MV2_",
        "JSM_",
        "ALPS_APP_",
        "OMPI_COMM_",
        "OMPI_UNIVERSE_",
        "OMPI_MCA_ess_",
        "OMPI_MCA_orte_",
        "OMPI_MCA_pmix",
        "OMPI_MCA_prte_",
    ];
    const NAMES: &[&str] = &[
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_TASK_PID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_GTIDS",
        "SLURMD_NODENAME",
        "FLUX_JOB_SIZE",
        "FLUX_JOB_NNODES",
        "FLUX_KVS_NAMESPACE",
        "OMPI_APP_CTX_NUM_PROCS",
        "OMPI_ARGV",
        "OMPI_COMMAND",
        "OMPI_FILE_LOCATION",
        "OMPI_FIRST_RANKS",
        "OMPI_NUM_APP_CTX",
    ];
    let is_of_slurm = name.starts_with("SLURM");
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || hides_slurm && is_of_slurm
}

/// Refuses a file below a link in the task's directory. Files behind a linked directory (an input,
/// for example) are not the task's to write or to collect.
pub(crate) fn no_link_above(directory: &Path, inside: &Path) -> Result<(), String> {
    let parents: Vec<&Path> = inside.ancestors().skip(1).collect();
    for parent in parents.into_iter().rev().filter(|parent| !parent.as_os_str().is_empty()) {
        let metadata = std::fs::symlink_metadata(directory.join(parent));
        if metadata.is_ok_and(|metadata| metadata.is_symlink()) {
            let (file, link) = (inside.display(), parent.display());
            return Err(format!("'{file}' leads out of the task's directory: '{link}' is a link"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        assert_eq!(inside("a/b.txt").unwrap(), Path::new("a/b.txt"));
        assert_eq!(inside("./a//b").unwrap(), Path::new("a/b"));
        for name in ["", ".", "/etc/passwd", "..", "a/../../b", "a/..", "x\0y"] {
            assert!(inside(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn variables() {
        assert_eq!(variable("STARLING_IN_", "my-file.txt"), "STARLING_IN_my_file_txt");
        let hidden = [
            "PMIX_RANK",
            "STARLING_SECRET",
            "SLURM_PROCID",
            "SLURM_STEP_ID",
            "OMPI_COMM_WORLD_RANK",
            "PALS_RANKID",
            "FLUX_TASK_RANK",
            "FLUX_JOB_SIZE",
            "MV2_COMM_WORLD_RANK",
            "MPI_LOCALNRANKS",
            "I_MPI_HYDRA_BOOTSTRAP",
        ];
        assert!(hidden.into_iter().all(|name| is_hidden_variable(name, false)));
        let shown = [
            "PATH",
            "MYSLURM_X",
            "SLURM_JOB_ID",
            "SLURM_CONF",
            "SLURM_NTASKS_PER_NODE",
            "OMPI_MCA_btl",
            "FLUX_URI",
            "FLUX_JOB_ID",
            "I_MPI_FABRICS",
        ];
        assert!(!shown.into_iter().any(|name| is_hidden_variable(name, false)));
        for name in ["SLURM_JOB_ID", "SLURM_CONF", "SLURMD_NODENAME"] {
            assert!(is_hidden_variable(name, true), "{name}");
        }
        assert!(!is_hidden_variable("MYSLURM_X", true));
    }
}
