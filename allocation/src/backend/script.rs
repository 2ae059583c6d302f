//! The scripts of a batch job: one runs first and claims the intent, the other one on each node.

use std::fmt::Write;

use crate::backend::{pbs, slurm};
use crate::{QueueConfig, Submission, System};

/// Nodes of an allocation have this variable: `QUEUE/NUMBER`.
pub const ALLOCATION_VARIABLE: &str = "STARLING_ALLOCATION";

/// The paths of one allocation. All machines see them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The program `starling`.
    pub program: String,
    /// The directory of the cluster.
    pub directory: String,
    /// The folder of this allocation.
    pub folder: String,
}

impl Place {
    #[must_use]
    pub fn job_script(&self) -> String {
        format!("{}/job.sh", self.folder)
    }
    #[must_use]
    pub fn node_script(&self) -> String {
        format!("{}/node.sh", self.folder)
    }
    #[must_use]
    pub fn output(&self) -> String {
        format!("{}/output", self.folder)
    }
    fn starling(&self) -> String {
        format!("{} --dir {}", quoted(&self.program), quoted(&self.directory))
    }
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The batch job: it claims its intent, starts the nodes, and reports its end.
#[must_use]
pub fn job_script(submission: &Submission, place: &Place) -> String {
    let (queue, number) = (&submission.queue, submission.number);
    let (directives, job, end, on_each) = match queue.system {
        System::Slurm => {
            (slurm::directives(submission, place), slurm::JOB, slurm::end(), slurm::ON_EACH_NODE)
        }
        System::Pbs => (
            pbs::directives(submission, place),
            pbs::JOB,
            pbs::end(queue.time_limit_s),
            pbs::ON_EACH_NODE,
        ),
    };
    let (starling, name) = (place.starling(), quoted(&queue.name));
    let node = quoted(&place.node_script());
    format!(
        "#!/bin/bash\n{directives}\n\
         umask {umask:04o}\n\
         end={end}\n\
         to=$({starling} alloc claim {name} {number} --job \"{job}\") || exit 1\n\
         # Another batch job has this allocation.\n\
         [ \"$to\" = taken ] && exit 0\n\
         {on_each} /bin/sh {node} \"$to\" \"$end\"\n\
         code=$?\n\
         {starling} alloc ended {name} {number} --job \"{job}\" --code \"$code\"\n\
         exit \"$code\"\n",
        umask = queue.umask & 0o777,
        directives = directives.join("\n"),
    )
}

/// The command of each node.
#[must_use]
pub fn node_script(submission: &Submission, place: &Place) -> String {
    let queue = &submission.queue;
    let mut flags = format!(" --idle-timeout {}s", queue.idle_timeout_s);
    if let Some(cpus) = queue.cpus {
        let _ = write!(flags, " --slots {cpus}");
    }
    let pairs = [("--resource", &queue.resources), ("--label", &queue.labels)];
    for (flag, values) in pairs {
        values.iter().for_each(|value| _ = write!(flags, " {flag} {}", quoted(value)));
    }
    queue.node_arguments.iter().for_each(|word| _ = write!(flags, " {}", quoted(word)));
    let wrap = match queue.wrap.is_empty() {
        true => String::new(),
        false => format!("{} ", queue.wrap),
    };
    let start =
        format!("{wrap}{} node --join \"$1\" ${{2:+--ends-at \"$2\"}}{flags}", place.starling());
    let own = quoted(&format!("{}/{}", queue.name, submission.number));
    let init =
        format!("export {ALLOCATION_VARIABLE}={own}\n{}{}", init_of(queue), earlier_end(queue));
    match queue.node_fini.is_empty() {
        true => format!("#!/bin/sh\n{init}exec {start}\n"),
        // The shell outlives the signals that end the node.
        false => format!(
            "#!/bin/sh\ntrap : TERM INT\n{init}{start}\ncode=$?\n{}\nexit $code\n",
            queue.node_fini
        ),
    }
}

/// The arguments of the script with the end of a node that has a time limit of its own.
fn earlier_end(queue: &QueueConfig) -> String {
    let Some(limit_s) = queue.node_time_limit_s else { return String::new() };
    format!(
        "end=$(($(date +%s) + {limit_s}))\n\
         if [ -n \"$2\" ] && [ \"$2\" -lt \"$end\" ]; then end=$2; fi\n\
         set -- \"$1\" \"$end\"\n"
    )
}

/// The commands before the node. If the last of them fails, the node does not start.
fn init_of(queue: &QueueConfig) -> String {
    if queue.node_init.is_empty() {
        return String::new();
    }
    let fini = match queue.node_fini.as_str() {
        "" => String::new(),
        fini => format!("{fini}\n"),
    };
    format!(
        "{{ :\n{}\n}}\ncode=$?\nif [ $code -ne 0 ]; then\n\
         echo \"--node-init ended with code $code: the node does not start\" >&2\n\
         {fini}exit $code\nfi\n",
        queue.node_init
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::config;

    fn submission(change: impl Fn(&mut QueueConfig)) -> (Submission, Place) {
        let mut queue = config("fast", 4);
        change(&mut queue);
        let name = "st-c-fast-3".to_owned();
        let place = Place {
            program: "/opt/star ling".into(),
            directory: "/d".into(),
            folder: "/d/alloc/fast/3".into(),
        };
        (Submission { queue, number: 3, name, nodes: 2 }, place)
    }

    #[test]
    fn a_batch_job_claims_before_its_nodes_start() {
        let (slurm, place) = submission(|queue| queue.system = System::Slurm);
        let script = job_script(&slurm, &place);
        for line in [
            "#SBATCH --job-name=st-c-fast-3",
            "#SBATCH --nodes=2",
            "#SBATCH --time=60:00",
            "umask 0027",
            "#SBATCH --cpus-per-task=4",
            "#SBATCH --output=/d/alloc/fast/3/output",
        ] {
            assert!(script.lines().any(|it| it == line), "{line}: {script}");
        }
        let at = |text: &str| script.find(text).unwrap_or_else(|| panic!("{text}: {script}"));
        assert!(
            at("'/opt/star ling' --dir /d alloc claim fast 3") < at("srun --overlap --no-kill")
        );
        assert!(at("srun ") < at("alloc ended fast 3"));
        assert!(!script.contains("--cpus "), "a node says itself what it offers: {script}");
        let (pbs, place) = submission(|queue| queue.arguments = vec!["-q".into(), "a b".into()]);
        let script = job_script(&pbs, &place);
        assert!(
            script.contains("#PBS -l select=2:ncpus=4\n#PBS -l walltime=01:00:00\n"),
            "{script}"
        );
        assert!(script.contains("pbsdsh -- /bin/sh /d/alloc/fast/3/node.sh"), "{script}");
        assert_eq!(System::Pbs.submit(&pbs, &place).line(), "qsub -q 'a b' /d/alloc/fast/3/job.sh");
        let checked = System::Slurm.check(&slurm, &place).line();
        assert_eq!(checked, "sbatch --test-only --parsable /d/alloc/fast/3/job.sh");
    }

    #[test]
    fn nodes_know_the_cluster_their_end_and_their_pools() {
        let (plain, place) = submission(|queue| queue.resources = vec!["gpus=[0,1]".into()]);
        let script = node_script(&plain, &place);
        let start = "exec '/opt/star ling' --dir /d node --join \"$1\" ${2:+--ends-at \"$2\"} \
                     --idle-timeout 300s --slots 4 --resource 'gpus=[0,1]'\n";
        assert!(script.ends_with(start), "{script}");
        let (more, place) = submission(|queue| {
            queue.node_init = "module load x".into();
            queue.node_fini = "rm -r /tmp/x".into();
            queue.wrap = "numactl -i all".into();
        });
        let script = node_script(&more, &place);
        let order =
            ["trap : TERM", "module load x", "numactl -i all '/opt/", "rm -r", "exit $code"];
        let places: Vec<_> = order.iter().map(|text| script.rfind(text).expect(text)).collect();
        assert!(places.is_sorted(), "{script}");
    }

    /// The output and the exit code of a node's script, with `echo` in the place of the program.
    fn ran(change: impl Fn(&mut QueueConfig)) -> (String, Option<i32>) {
        let (submission, place) = submission(change);
        let place = Place { program: "echo".into(), ..place };
        let script = node_script(&submission, &place);
        let shell = std::process::Command::new("sh").args(["-c", &script, "sh", "to"]).output();
        let output = shell.expect("there is a shell");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    }

    #[test]
    fn a_node_ends_with_its_own_limit_or_with_its_allocation() {
        let ends_at = |end: &str, limit_s: Option<u64>| {
            let (submission, place) = submission(|queue| queue.node_time_limit_s = limit_s);
            let script = node_script(&submission, &Place { program: "echo".into(), ..place });
            let arguments = ["-c", &script, "sh", "to", end];
            let ran = std::process::Command::new("sh").args(arguments).output();
            let text = String::from_utf8_lossy(&ran.expect("there is a shell").stdout).into_owned();
            let end = text.split_whitespace().skip_while(|word| *word != "--ends-at").nth(1);
            end.map(|end| end.parse::<u64>().expect("a number"))
        };
        assert_eq!(ends_at("7", None), Some(7));
        assert_eq!(ends_at("7", Some(60)), Some(7));
        let now_s = ends_at("", Some(0)).expect("its own end");
        assert!(now_s > 1_700_000_000);
        let far = (now_s + 100_000).to_string();
        assert!((now_s..now_s + 300).contains(&ends_at(&far, Some(60)).expect("its own end")));
        assert_eq!(ends_at("", None), None);
    }

    #[test]
    fn a_node_does_not_start_after_a_failed_init() {
        let started = |init: &str, fini: &str| {
            let (stdout, code) = ran(|queue| {
                (queue.node_init, queue.node_fini) = (init.into(), fini.into());
            });
            (stdout.contains("node --join to"), stdout.contains("the end"), code)
        };
        assert_eq!(started("", ""), (true, false, Some(0)));
        assert_eq!(started("# nothing", ""), (true, false, Some(0)));
        assert_eq!(started("true", "echo the end"), (true, true, Some(0)));
        assert_eq!(started("false; true", ""), (true, false, Some(0)), "the last command counts");
        assert_eq!(started("true\n(exit 7)", ""), (false, false, Some(7)));
        assert_eq!(started("(exit 7)", "echo the end"), (false, true, Some(7)));
    }
}
