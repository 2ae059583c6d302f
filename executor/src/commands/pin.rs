//! Commands that are pinned to the cpus of their attempt.

use proto::wire::CpuPin;
use proto::work::Granted;

use crate::commands::environment::push_variable;
use crate::commands::resources::cpu_names;
use crate::executor::ExecutorConfig;

/// The variable with the word of [`CpuPin`].
pub(crate) const PIN_VARIABLE: &str = "STARLING_PIN";

/// Adds the variables of a pinned command. Returns the cpus for its affinity; none: it keeps the
/// affinity of the node.
pub(crate) fn push_pin(
    out: &mut Vec<Vec<u8>>,
    config: &ExecutorConfig,
    pin: CpuPin,
    granted: Option<&Granted>,
) -> Result<Vec<u32>, String> {
    let Some(word) = pin.word() else { return Ok(Vec::new()) };
    if let Some(reason) = &config.pin_refusal {
        return Err(format!("it cannot be pinned on {}: {reason}", config.node));
    }
    let names = granted.map_or(&[][..], cpu_names);
    if names.is_empty() {
        return Err(format!("it cannot be pinned on {}: its cpus have no numbers", config.node));
    }
    push_variable(out, PIN_VARIABLE, word);
    if pin == CpuPin::Omp {
        push_variable(out, "OMP_PROC_BIND", "close");
        push_variable(out, "OMP_PLACES", &format!("{{{}}}", names.join("},{")));
        return Ok(Vec::new());
    }
    let number = |name: &String| {
        let wrong = |_| format!("it cannot be pinned on {}: '{name}' is no cpu", config.node);
        name.parse().map_err(wrong)
    };
    names.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use proto::NodeId;
    use proto::work::GrantedPool;

    use super::*;

    fn granted(cpus: &[&str]) -> Granted {
        let indices = cpus.iter().map(|name| (*name).to_owned()).collect();
        let pool = GrantedPool { name: "cpus".into(), variable: "cpus".into(), units: 0, indices };
        Granted { variant: 0, pools: vec![pool] }
    }

    fn pinned(pin: CpuPin, cpus: &[&str]) -> (Result<Vec<u32>, String>, Vec<String>) {
        let config = ExecutorConfig::new("/state", NodeId(2), 4);
        let mut out = Vec::new();
        let cpus = push_pin(&mut out, &config, pin, Some(&granted(cpus)));
        (cpus, out.into_iter().map(|it| String::from_utf8(it).unwrap()).collect())
    }

    #[test]
    fn a_pinned_command_gets_exactly_the_cpus_of_its_attempt() {
        let (cpus, variables) = pinned(CpuPin::Taskset, &["3", "7"]);
        assert_eq!((cpus, variables), (Ok(vec![3, 7]), vec!["STARLING_PIN=taskset".to_owned()]));
        let (cpus, variables) = pinned(CpuPin::Omp, &["3", "7"]);
        let places = ["STARLING_PIN=omp", "OMP_PROC_BIND=close", "OMP_PLACES={3},{7}"];
        assert_eq!((cpus, variables), (Ok(vec![]), places.map(str::to_owned).to_vec()));
        assert_eq!(pinned(CpuPin::Unpinned, &["3"]), (Ok(vec![]), vec![]));
    }

    #[test]
    fn without_known_cpus_it_fails_with_the_reason() {
        assert!(pinned(CpuPin::Taskset, &["left"]).0.unwrap_err().ends_with("'left' is no cpu"));
        assert!(pinned(CpuPin::Omp, &[]).0.unwrap_err().contains("no numbers"));
        let mut config = ExecutorConfig::new("/state", NodeId(2), 4);
        config.pin_refusal = Some("the node has 4 slots".into());
        let refused = push_pin(&mut Vec::new(), &config, CpuPin::Omp, Some(&granted(&["0"])));
        assert_eq!(refused.unwrap_err(), "it cannot be pinned on n2: the node has 4 slots");
    }
}
