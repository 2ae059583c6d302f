//! Examples of the verbs, for their manual pages and their help.

use clap::Command;

/// A command line, and what it does.
pub(crate) type Example = (&'static str, &'static str);

/// The examples by verb.
const TABLE: [(&str, &[Example]); 50] = [
    (
        "run",
        &[
            (
                "starling run workflow.toml --output results",
                "Runs a workflow file, and puts its kept outputs below results.",
            ),
            (
                "starling run -- gzip {} ::: a.log b.log",
                "Runs one command for each entry of a list.",
            ),
            (
                "starling run -k --joblog log -a list.txt -- ./step {}",
                "Runs a command for each line of a file; its output is in their order.",
            ),
            (
                "starling run --joblog log --resume-failed -- ./step {} ::: a b c",
                "Runs what is not in the log, or has failed.",
            ),
        ],
    ),
    (
        "up",
        &[
            ("starling up --nodes 3 --slots 2", "Starts three nodes in the background."),
            ("starling up", "Starts the nodes that are missing."),
        ],
    ),
    (
        "down",
        &[
            ("starling down", "Stops the nodes of the instance; its jobs stay on disk."),
            ("starling down --dir /shared/cluster", "Stops the nodes of another instance."),
        ],
    ),
    (
        "node",
        &[
            (
                "starling node --join 10.0.0.7:40112",
                "Adds a node of this machine to a cluster, until it is stopped.",
            ),
            (
                "starling node --rendezvous meet --expect 4",
                "Makes one of four nodes that a launcher starts, such as srun.",
            ),
            (
                "starling node --slots 0 --listen auto",
                "Makes a keeper, which keeps replicas and runs no tasks.",
            ),
        ],
    ),
    (
        "node list",
        &[
            ("starling node list", "Lists the nodes with their states and slots."),
            ("starling node list --json", "Prints the same for programs."),
        ],
    ),
    (
        "node drain",
        &[
            ("starling node drain n3", "Has a node leave once its tasks have ended."),
            (
                "starling node drain n3 --deadline 2m",
                "Moves tasks with a signal that still run after two minutes.",
            ),
        ],
    ),
    (
        "node pause",
        &[
            ("starling node pause n3", "Has a node start no further tasks."),
            ("starling node pause n3 n4", "Has two nodes start no further tasks."),
        ],
    ),
    (
        "node stop",
        &[
            ("starling node stop n2", "Stops a node; 'starling up' starts it again."),
            ("starling node stop n1 n2", "Stops two nodes."),
        ],
    ),
    (
        "submit",
        &[
            ("starling submit -- ./work input.dat", "Submits a command, and prints its job."),
            (
                "starling submit --array 1-1000 --wait -- ./work {i}",
                "Submits a thousand tasks, and waits for their end.",
            ),
            (
                "starling submit --file workflow.toml --wait",
                "Submits a workflow file, and waits for its end.",
            ),
            (
                "starling submit --gpus 1 --memory 4GiB -- ./train",
                "Submits a task that needs a GPU and memory.",
            ),
            (
                "starling submit --upload numbers --out sorted -- sort numbers -o sorted",
                "Sends a file along, and keeps an output for 'starling job fetch'.",
            ),
        ],
    ),
    (
        "spawn",
        &[
            (
                "starling spawn --key parts --array 1-8 -- ./part.sh {i}",
                "Makes eight tasks; another attempt with the same key makes no further ones.",
            ),
            (
                "starling spawn --after 0-7 -- ./merge.sh",
                "Makes a task that starts when eight children are done.",
            ),
        ],
    ),
    (
        "await",
        &[
            ("starling await", "Waits for all children, without a slot."),
            ("starling await 0 2-5", "Waits for some of the children."),
        ],
    ),
    (
        "commit",
        &[
            (
                "starling commit --state progress",
                "Keeps a file; STARLING_STATE names it in another attempt.",
            ),
            (
                "starling commit --checkpoint --yield",
                "Keeps the checkpoint directory, and ends this attempt.",
            ),
        ],
    ),
    (
        "event send",
        &[
            ("starling event send parent --data ready", "Sends a text to the parent."),
            ("starling event send 0 --file steer.json", "Sends the bytes of a file to a child."),
        ],
    ),
    (
        "event recv",
        &[
            ("starling event recv", "Waits for the next event, and prints it."),
            ("starling event recv --from parent --timeout 10s", "Waits ten seconds for one task."),
        ],
    ),
    (
        "var get",
        &[
            ("starling var get best", "Prints a variable of the job of this task."),
            (
                "starling var get --job last best --json",
                "Prints it from outside, with its witness.",
            ),
        ],
    ),
    (
        "var set",
        &[
            ("starling var set best 42 --witness '3 1 2'", "Sets a variable, with what proves it."),
            ("starling var set --job 5 note 'look at 7'", "Sets a variable from outside."),
        ],
    ),
    (
        "job list",
        &[
            ("starling job list", "Lists the jobs of the cluster."),
            (
                "starling job list --from starling-runs",
                "Lists the records of runs, without a cluster.",
            ),
        ],
    ),
    (
        "job info",
        &[
            ("starling job info last", "Sums up the newest job."),
            ("starling job info 5 --round 0", "Sums up a job as it was before its first retry."),
            ("starling job info last --from starling-runs", "Sums up the newest run record."),
        ],
    ),
    (
        "job wait",
        &[
            ("starling job wait last --timeout 10m", "Waits at most ten minutes for a job."),
            ("starling job wait 1-3,7", "Waits for several jobs."),
        ],
    ),
    (
        "job progress",
        &[
            ("starling job progress last", "Follows the newest job to its end."),
            ("starling job progress last --json", "Prints each state as a line for programs."),
        ],
    ),
    (
        "job watch",
        &[
            ("starling job watch last --var best", "Prints each improvement of a variable."),
            (
                "starling job watch 5 --var best --var note",
                "Follows two variables; each line begins with the name.",
            ),
        ],
    ),
    (
        "job cancel",
        &[
            ("starling job cancel last", "Cancels the newest job, and kills its running tasks."),
            ("starling job cancel 3-5", "Cancels several jobs."),
        ],
    ),
    (
        "job retry",
        &[
            ("starling job retry last --wait", "Runs all unfinished tasks again, and waits."),
            ("starling job retry 5 align-17,align-20", "Runs two failed tasks again."),
        ],
    ),
    (
        "job forget",
        &[
            ("starling job forget 1-3", "Removes records of jobs; a job that keeps results stays."),
            ("starling job forget 4 --results", "Removes a job with its kept results."),
        ],
    ),
    (
        "job output",
        &[
            ("starling job output last", "Prints the standard output of all tasks."),
            ("starling job output 5 align-17 --stderr", "Prints the standard error of one task."),
        ],
    ),
    (
        "job logs",
        &[
            ("starling job logs last -f", "Follows the output of all tasks to the end of the job."),
            ("starling job logs 5 3-20 --stderr", "Prints what entries of an array have printed."),
        ],
    ),
    (
        "job fetch",
        &[
            ("starling job fetch last -o results", "Copies the kept outputs of the newest job."),
            ("starling job fetch 1-3 -o results", "Makes a directory for each job below results."),
        ],
    ),
    (
        "task list",
        &[
            (
                "starling task list last --state failed,skipped",
                "Lists the tasks that did not end well.",
            ),
            (
                "starling task list last --kind align --sort duration --limit 10",
                "Lists ten tasks of a kind by their time.",
            ),
            (
                "starling task list last --from starling-runs",
                "Lists the tasks of a run record, without a cluster.",
            ),
        ],
    ),
    (
        "task info",
        &[
            ("starling task info last sum", "Shows a task by its name, with its events."),
            ("starling task info 5 0.17 --json", "Shows a task by its id, for programs."),
        ],
    ),
    (
        "task explain",
        &[
            ("starling task explain last sum", "Gives the reason why a task does not run."),
            (
                "starling task explain last align-17 --from starling-runs",
                "Tells where a task of a run record ran, and why there.",
            ),
        ],
    ),
    (
        "task cancel",
        &[
            ("starling task cancel last align-17", "Cancels a task and those that wait for it."),
            ("starling task cancel 5 0.3,0.4", "Cancels two tasks by their ids."),
        ],
    ),
    (
        "kv insert",
        &[
            ("starling kv insert colour blue", "Sets a key."),
            ("starling kv insert config -", "Sets a key to the bytes of standard input."),
        ],
    ),
    (
        "token make",
        &[
            ("starling token make", "Makes a token for one node that joins."),
            ("starling token make --expires 5m", "Makes a token that is valid for five minutes."),
        ],
    ),
    (
        "alloc add",
        &[
            (
                "starling alloc add slurm --time-limit 2h --max-nodes 20 -- --partition=main",
                "Makes a queue of allocations that have two hours each.",
            ),
            (
                "starling alloc add pbs --name night --paused",
                "Makes a queue that submits nothing before 'starling alloc resume'.",
            ),
        ],
    ),
    (
        "workload make",
        &[
            (
                "starling workload make fan-out:tasks=1000,degree=10 -o fan.toml",
                "Writes a generated workflow as a workflow file.",
            ),
            (
                "starling workload make pipeline:tasks=100,length=10 -o pipeline.dot",
                "Writes one as a graph for Graphviz.",
            ),
        ],
    ),
    (
        "workload info",
        &[
            ("starling workload info workflow.toml", "Counts the parts of a workflow file."),
            ("starling workload info workflow.toml --homes 8", "Adds the balance on eight homes."),
        ],
    ),
    (
        "sim",
        &[
            (
                "starling sim bag:tasks=20000,duration=50ms --nodes 32 --slots 4",
                "Simulates a generated workflow on 128 slots.",
            ),
            (
                "starling sim workflow.toml --nodes 100 --faults kill=2 --record sim.srr",
                "Simulates failures, and writes a record for 'starling report'.",
            ),
        ],
    ),
    (
        "bound",
        &[
            (
                "starling bound workflow.json --nodes 4 --slots 4",
                "Prints the times below which no cluster of this size can come.",
            ),
            ("starling bound workflow.toml --run 12", "Compares them with a job of the cluster."),
        ],
    ),
    (
        "search",
        &[
            ("starling search queens:12", "Counts the solutions on all CPUs of this machine."),
            (
                "starling search tsp:berlin52.tsp --timeout 10m --json",
                "Looks ten minutes for the shortest tour and its proof.",
            ),
        ],
    ),
    (
        "bench",
        &[
            ("starling bench noop --json", "Measures how many empty tasks run in a second."),
            ("starling bench kv --rounds 3", "Measures the key-value store."),
        ],
    ),
    (
        "report",
        &[
            ("starling report last -o report.html", "Writes one page that needs no network."),
            ("starling report last --against 3", "Compares two jobs."),
            ("starling report --from starling-runs", "Reports the newest run, without a cluster."),
        ],
    ),
    (
        "trace",
        &[
            ("starling trace last -o trace.json", "Writes a trace for Perfetto."),
            (
                "starling trace --from starling-runs --format perfetto -o trace.pftrace",
                "Writes the newest run in the binary form of Perfetto.",
            ),
        ],
    ),
    (
        "web",
        &[
            ("starling web", "Serves the page of the cluster, and prints its address."),
            ("starling web --port 8787", "Serves it at a port to which 'ssh -L' can forward."),
            ("starling web --from starling-runs", "Shows run records, without a cluster."),
        ],
    ),
    (
        "top",
        &[
            ("starling top", "Shows the cluster in the terminal; q ends it."),
            ("starling top --once", "Prints all views once, for scripts."),
            ("starling top --from starling-runs", "Shows run records, without a cluster."),
        ],
    ),
    (
        "metrics",
        &[
            ("starling metrics", "Prints the metrics of all nodes once."),
            ("starling metrics --listen 127.0.0.1:9464", "Serves them to Prometheus."),
        ],
    ),
    (
        "config set",
        &[
            ("starling config set slots 4", "Writes a setting into the user's file."),
            ("starling config set slots 2 --here", "Writes it into ./starling.toml."),
        ],
    ),
    (
        "config get",
        &[
            ("starling config get slots", "Prints the effective value of a setting."),
            ("starling config get policy --json", "Prints it for programs."),
        ],
    ),
    (
        "doctor",
        &[
            ("starling doctor", "Checks this machine and the instance."),
            ("starling doctor --bundle report.tar.gz", "Packs checks and logs for a bug report."),
        ],
    ),
    (
        "example",
        &[
            ("starling example", "Lists the examples."),
            ("starling example word-count -o /tmp", "Writes one into a directory."),
        ],
    ),
    (
        "init",
        &[
            ("starling init", "Writes workflow.toml, a small workflow with comments."),
            ("starling init flow.toml", "Writes it under another name."),
        ],
    ),
];

/// The examples of a verb, such as `job wait`; none if it has none.
pub(crate) fn of(verb: &str) -> &'static [Example] {
    let found = TABLE.iter().find(|(name, _)| *name == verb);
    found.map(|(_, examples)| *examples).unwrap_or_default()
}

/// The examples of a manual page, such as `starling-job-wait`.
pub(crate) fn of_page(page: &str) -> &'static [Example] {
    let verb = page.strip_prefix("starling-").unwrap_or_default();
    let found = TABLE.iter().find(|(name, _)| name.replace(' ', "-") == verb);
    found.map(|(_, examples)| *examples).unwrap_or_default()
}

/// Adds the examples of all verbs to their help. `verb`: the words that lead to this command.
pub(crate) fn in_help(mut command: Command, verb: &str) -> Command {
    for below in command.get_subcommands_mut() {
        let name = format!("{verb} {}", below.get_name());
        *below = in_help(std::mem::take(below), name.trim_start());
    }
    let examples = of(verb);
    if examples.is_empty() {
        return command;
    }
    let lines = examples.iter().map(|(line, text)| format!("  {line}\n          {text}"));
    command.after_help(format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    use clap::{ArgMatches, CommandFactory as _};

    use super::*;
    use crate::args::Cli;

    /// Verbs that a build with other features lacks.
    fn is_built(verb: &str) -> bool {
        verb != "bench" || cfg!(feature = "bench")
    }

    /// The verb of a command line that was read.
    fn verb_of(matches: &ArgMatches) -> String {
        match matches.subcommand() {
            Some((name, below)) => format!("{name} {}", verb_of(below)).trim_end().to_owned(),
            None => String::new(),
        }
    }

    #[test]
    fn every_example_is_a_line_of_its_verb() {
        for (verb, examples) in TABLE.iter().filter(|(verb, _)| is_built(verb)) {
            let mut command = &Cli::command();
            for word in verb.split(' ') {
                command = command.find_subcommand(word).unwrap_or_else(|| panic!("no verb {verb}"));
            }
            assert!(examples.len() >= 2, "{verb}: {} examples", examples.len());
            for (line, text) in *examples {
                let words = verb::directives::words(line).expect("the quotes are closed");
                let matches = Cli::command().try_get_matches_from(words);
                let matches = matches.unwrap_or_else(|error| panic!("{line}: {error}"));
                let found = verb_of(&matches);
                let is_below = found
                    .strip_prefix(*verb)
                    .is_some_and(|it| it.is_empty() || it.starts_with(' '));
                assert!(is_below, "{line} is of '{found}', not of '{verb}'");
                // Help is wrapped at 100 columns.
                assert!(line.len() <= 98 && text.len() <= 90, "{line}: too long");
                assert!(text.ends_with('.'), "{text}");
            }
        }
    }

    #[test]
    fn no_verb_is_listed_twice() {
        let mut verbs: Vec<&str> = TABLE.iter().map(|(verb, _)| *verb).collect();
        verbs.sort_unstable();
        assert!(verbs.windows(2).all(|pair| pair[0] != pair[1]), "{verbs:?}");
    }

    #[test]
    fn help_ends_with_the_examples() {
        let mut command = in_help(Cli::command(), "");
        command.build();
        let wait = command.find_subcommand("job").and_then(|job| job.find_subcommand("wait"));
        let help = wait.cloned().expect("it is there").render_help().to_string();
        let expected = "\n\nExamples:\n  starling job wait last --timeout 10m\n          \
                        Waits at most ten minutes for a job.\n";
        assert!(help.contains(expected), "{help}");
    }
}
