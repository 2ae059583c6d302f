//! `submit --replicas`: the number of nodes that must have an output before its task counts as
//! done.

use std::str::FromStr;

use glob::Pattern;
use proto::limits::COPIES_MAX;
use verb::errors::Failure;
use workloads::Graph;

/// A class of outputs.
#[derive(Clone, Debug)]
enum Class {
    All,
    Kept,
    Files(Pattern),
}

/// `3`, `kept=3` or `*.fits=3`.
#[derive(Clone, Debug)]
pub(crate) struct ReplicasOf {
    class: Class,
    replicas: u32,
    text: String,
}

impl FromStr for ReplicasOf {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (class, number) = text.rsplit_once('=').unwrap_or(("all", text));
        let replicas = number.parse().ok().filter(|number| (1..=COPIES_MAX).contains(number));
        let replicas = replicas
            .ok_or_else(|| format!("'{number}' is not a number of copies: 1 to {COPIES_MAX}"))?;
        let class = match class {
            "all" => Class::All,
            "kept" => Class::Kept,
            pattern => Class::Files(Pattern::new(pattern).map_err(|error| {
                format!("'{pattern}' is neither 'all', 'kept' nor a pattern of files: {error}")
            })?),
        };
        Ok(Self { class, replicas, text: text.to_owned() })
    }
}

impl ReplicasOf {
    fn fits(&self, file: &str, is_kept: bool) -> bool {
        match &self.class {
            Class::All => true,
            Class::Kept => is_kept,
            Class::Files(pattern) => pattern.matches(file),
        }
    }
}

/// Applies them in order: for each output the last one that fits counts. One that fits no output is
/// an error.
pub(crate) fn set(graph: &mut Graph, all: &[ReplicasOf]) -> Result<(), Failure> {
    for one in all {
        if graph.set_replicas(one.replicas, |file, is_kept| one.fits(file, is_kept)) == 0 {
            let text = format!("--replicas {}: no output is of that class", one.text);
            return Err(Failure::usage(text).hint(
                "a class is 'all', 'kept', or files as tasks name them: --replicas '*.dat=2'",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> ReplicasOf {
        text.parse().expect(text)
    }

    #[test]
    fn a_class_is_all_or_what_is_kept_or_files_by_their_names() {
        let fits = |text: &str| {
            let outputs = [("a.dat", false), ("b.txt", true), ("x=y", false)];
            outputs.map(|(file, is_kept)| of(text).fits(file, is_kept))
        };
        assert_eq!(fits("2"), [true, true, true]);
        assert_eq!(fits("all=2"), [true, true, true]);
        assert_eq!(fits("kept=2"), [false, true, false]);
        assert_eq!(fits("*.dat=2"), [true, false, false]);
        assert_eq!(fits("x=y=2"), [false, false, true]);
        for wrong in ["", "0", "6", "kept", "kept=", "kept=x", "[=2", "-1"] {
            assert!(wrong.parse::<ReplicasOf>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_that_fits_counts_and_one_that_fits_nothing_is_refused() {
        let text = "[[task]]\nname='a'\ncommand=['true']\n\
                    outputs={k={file='k.dat',keep=true},t='t.txt'}\n";
        let file = tempfile::NamedTempFile::with_suffix(".toml").expect("there is room");
        std::fs::write(&file, text).expect("there is room");
        let options = workloads::LoadOptions::default();
        let mut graph = workloads::load(file.path(), None, &options).expect("it is right");
        set(&mut graph, &[of("2"), of("*.txt=3"), of("kept=1")]).expect("all fit something");
        let outputs = graph.specs().iter().flat_map(|spec| &spec.outputs);
        let mut replicas: Vec<_> = outputs.map(|it| (it.file.as_str(), it.replicas)).collect();
        replicas.sort_unstable();
        assert_eq!(replicas, [("k.dat", 1), ("t.txt", 3)]);
        assert!(set(&mut graph, &[of("*.fits=2")]).is_err());
    }
}
