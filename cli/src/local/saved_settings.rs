//! The settings with which `up` made the nodes of an instance: missing nodes get the same.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use verb::Context;
use verb::errors::Failure;
use verb::flags::{CapturedArgs, ScrubArgs, SlurmArgs};
use verb::history::History;
use verb::local::plan::ClusterPlan;

/// In the instance directory: names and values of settings.
const FILE: &str = "up.json";
/// The maximum size of the file.
const BYTES_MAX: u64 = 64 << 10;

/// The context with the settings of the instance's last `up` in place of the built-in ones. Flags,
/// the environment and files precede them.
pub(crate) fn with_remembered(context: &Context, dir: &Path) -> Result<Context, Failure> {
    let path = dir.join(FILE);
    let Some(values) = accepted(&path)? else { return Ok(context.clone()) };
    let settings = context.settings.clone().over_built_in(path.display().to_string(), values);
    Ok(context.with_settings(settings))
}

/// The slots with which the last `up` started working nodes.
pub(crate) fn slots(dir: &Path) -> Result<Option<u32>, Failure> {
    let values = read(&dir.join(FILE))?;
    Ok(values.and_then(|values| values.get("slots")?.parse().ok()))
}

/// The saved settings, with values that this version accepts.
fn accepted(path: &Path) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let mut values = read(path)?;
    if let Some(history) = values.as_mut().and_then(|values| values.get_mut("history"))
        && let Ok(accepted) = History::saved(history)
    {
        *history = accepted.to_string();
    }
    Ok(values)
}

fn read(path: &Path) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file(path, &error)),
    };
    let values = serde_json::from_reader(file.take(BYTES_MAX));
    values.map(Some).map_err(|error| {
        Failure::refused(format!("{}: {error}", path.display()))
            .hint("remove the file, and give the flags of the first 'up' again")
    })
}

/// Stores the settings of the nodes. Another `up` sees the old file or the new one.
pub(crate) fn write(dir: &Path, plan: &ClusterPlan) -> Result<(), Failure> {
    let path = dir.join(FILE);
    let temporary = dir.join(format!(".{FILE}.{}", std::process::id()));
    let text = serde_json::to_string(&values(plan)).expect("strings always serialise");
    let written = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, &path));
    written.map_err(|error| Failure::file(&path, &error))
}

/// The settings by their names, from the flags.
fn values(plan: &ClusterPlan) -> BTreeMap<String, String> {
    let mut flags = vec!["--slots".to_owned(), plan.slots.to_string()];
    flags.extend(ScrubArgs::flags(plan.scrub_every));
    flags.extend(CapturedArgs::flags(plan.captured));
    flags.extend(SlurmArgs::flags(plan.hides_slurm));
    flags.extend(verb::flags::tuning::flags(&plan.tuning));
    let pairs = flags.chunks_exact(2);
    let name = |flag: &str| flag.trim_start_matches("--").replace('-', "_");
    pairs.map(|pair| (name(&pair[0]), pair[1].clone())).chain(plan.offer.saved()).collect()
}

#[cfg(test)]
mod tests {
    use scheduler::Tuning;

    use super::*;
    use verb::settings::{KEYS, Settings};

    #[test]
    fn what_was_written_is_nearer_than_what_is_built_in() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = ClusterPlan::new(2, 7, Tuning::default());
        plan.scrub_every = None;
        plan.captured.node_bytes = Some(77);
        plan.hides_slurm = true;
        write(dir.path(), &plan).unwrap();
        let values = read(&dir.path().join(FILE)).unwrap().unwrap();
        for key in values.keys() {
            assert!(KEYS.iter().any(|(known, _)| known == key), "{key} is no setting");
        }
        let settings = Settings::none().over_built_in("there".to_owned(), values);
        assert_eq!(settings.pick::<u32>(None, "slots").unwrap(), 7);
        assert_eq!(settings.pick::<u32>(Some(3), "slots").unwrap(), 3, "a flag beats it");
        assert_eq!(settings.get("scrub_every").unwrap(), ("0ns", "there"));
        assert_eq!(settings.get("captured_store").unwrap(), ("77B", "there"));
        assert_eq!(settings.get("slurm").unwrap(), ("hide", "there"));
        // An earlier version accepted less history than this one.
        std::fs::write(dir.path().join(FILE), r#"{"history": "5B"}"#).unwrap();
        let values = accepted(&dir.path().join(FILE)).unwrap().unwrap();
        assert_eq!(values["history"], "1048576B");
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(read(&dir.path().join(FILE)).is_err());
        assert!(read(&dir.path().join("absent")).unwrap().is_none());
    }
}
