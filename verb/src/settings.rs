//! Settings from outside the command line: environment, then files, nearest first.
//!
//! Precedence: flag > `STARLING_*` > `./starling.toml` > `$XDG_CONFIG_HOME/starling/config.toml` >
//! `/etc/starling/config.toml` > built in. With `STARLING_CONFIG=none` no file is read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proto::Policy;

use crate::errors::{Failure, meant, numbers_plain};

/// The settings and their built-in values.
pub const KEYS: [(&str, &str); 31] = [
    ("bandwidth", "1Gbit"),
    ("cache", "6GiB"),
    ("captured_limit", "1GiB"),
    ("captured_store", "auto"),
    ("coupling", "none"),
    ("data", "virtual"),
    ("dir", ""),
    ("history", "2GiB"),
    ("label", "none"),
    ("lengths", "measured"),
    ("nodes", "1"),
    ("order", "auto"),
    ("placement", "graph"),
    ("policy", Policy::Eft.name()),
    ("prefer", "none"),
    ("replicas", "auto"),
    ("resource", "none"),
    ("scale", "1"),
    ("scrub_every", "24h"),
    ("slots", "auto"),
    ("slurm", "keep"),
    ("steal_bound", "1024ms"),
    ("steal_interval", "1ms"),
    ("steal_neighbours", "sqrt"),
    ("steal_share", "0.5"),
    ("store_hard", "auto"),
    ("store_soft", "auto"),
    ("submit", "best"),
    ("threshold", "0.5"),
    ("timeout", "none"),
    ("wait_max", "10s"),
];

/// With the value `CONFIG_NONE` no settings file is read.
pub const CONFIG: &str = "STARLING_CONFIG";
pub const CONFIG_NONE: &str = "none";

/// The variable with which nodes pass their directory to a task.
pub const DIR_VARIABLE: &str = "STARLING_DIR";

#[derive(Clone, Debug)]
struct Layer {
    origin: String,
    values: BTreeMap<String, String>,
}

/// All layers below the flags, nearest first.
#[derive(Clone, Debug)]
pub struct Settings {
    layers: Vec<Layer>,
}

impl Settings {
    /// The built-in values, without environment and files.
    #[must_use]
    pub fn none() -> Self {
        Self::from(|_| None, &[]).expect("nothing can be wrong with nothing")
    }

    /// With values in place of built-in ones.
    pub fn over_built_in(mut self, origin: String, values: BTreeMap<String, String>) -> Self {
        let built_in = self.layers.len() - 1;
        self.layers.insert(built_in, Layer { origin, values });
        self
    }

    /// Reads the environment and the files of this process.
    pub fn load() -> Result<Self, Failure> {
        // A directory may have any name; see `Context::dir_path`.
        let names = KEYS.iter().map(|(key, _)| variable(key));
        let mut texts = names.filter(|name| name != DIR_VARIABLE);
        let is_no_text = |name: &String| odd_variable(name).is_some();
        if let Some(name) = texts.find(is_no_text) {
            return Err(Failure::usage(format!("{name}: its value is not valid UTF-8"))
                .hint("'starling config show' lists the settings"));
        }
        let mut files = vec![PathBuf::from("starling.toml")];
        files.extend(user_file());
        files.push(PathBuf::from("/etc/starling/config.toml"));
        Self::from(|name| std::env::var(name).ok(), &files)
    }

    fn from(env: impl Fn(&str) -> Option<String>, files: &[PathBuf]) -> Result<Self, Failure> {
        let mut layers = Vec::new();
        for (key, _) in KEYS {
            let name = variable(key);
            if let Some(value) = env(&name).filter(|value| !value.is_empty()) {
                let values = BTreeMap::from([(key.to_owned(), value)]);
                layers.push(Layer { origin: name, values });
            }
        }
        let read = env(CONFIG).is_none_or(|value| value != CONFIG_NONE);
        for path in files.iter().filter(|_| read) {
            layers.extend(read_file(path)?);
        }
        let values = KEYS.iter().filter(|(_, value)| !value.is_empty());
        let values = values.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        layers.push(Layer { origin: "built in".to_owned(), values: values.collect() });
        Ok(Self { layers })
    }

    /// The effective value below the flags, and its origin.
    pub fn get(&self, key: &str) -> Option<(&str, &str)> {
        self.layers
            .iter()
            .find_map(|layer| Some((layer.values.get(key)?.as_str(), layer.origin.as_str())))
    }

    /// The flag if it was given, else the setting, else the built-in value.
    pub fn pick<T: FromStr<Err: std::fmt::Display>>(
        &self,
        flag: Option<T>,
        key: &str,
    ) -> Result<T, Failure> {
        if let Some(value) = self.pick_optional(flag, key)? {
            return Ok(value);
        }
        let (text, origin) = self.get(key).expect("has a built-in value");
        let told = format!("{origin}: {key}: '{text}' means no value, and this setting needs one");
        Err(Failure::usage(told).hint("give a value, or remove the setting"))
    }

    /// As [`Self::pick`]; the words `auto` and `none` mean that nothing is set.
    pub fn pick_optional<T: FromStr<Err: std::fmt::Display>>(
        &self,
        flag: Option<T>,
        key: &str,
    ) -> Result<Option<T>, Failure> {
        if flag.is_some() {
            return Ok(flag);
        }
        let Some((text, origin)) = self.get(key) else { return Ok(None) };
        if text == "auto" || text == "none" {
            return Ok(None);
        }
        let parsed = text.parse().map(Some);
        parsed.map_err(|error: T::Err| {
            let error = numbers_plain(&error.to_string());
            let value = format!("'{text}'");
            let is_told = error.contains(&value);
            let error = if is_told { error } else { format!("{value}: {error}") };
            Failure::usage(format!("{origin}: {key}: {error}"))
        })
    }
}

/// The user's file of settings. An empty variable counts as unset.
pub fn user_file() -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".config"));
    Some(set("XDG_CONFIG_HOME").or_else(home)?.join("starling/config.toml"))
}

/// The variable that a setting comes from.
fn variable(key: &str) -> String {
    format!("STARLING_{}", key.to_uppercase())
}

/// The value of a variable that is no text.
pub fn odd_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| value.to_str().is_none())
}

fn read_file(path: &Path) -> Result<Option<Layer>, Failure> {
    // A directory of this name, or a pipe that never ends: not ours to complain.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(None);
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // A component that is a file.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
        // As after `sudo -u` without `-H`: HOME is that of another user.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let failure = Failure::file(path, &error);
            return Err(failure.hint(format!(
                "set HOME or XDG_CONFIG_HOME to a directory of yours, or {CONFIG}={CONFIG_NONE}"
            )));
        }
        Err(error) => return Err(Failure::file(path, &error)),
    };
    let wrong = |what: String| Failure::usage(format!("{}: {what}", path.display()));
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count()) + 1;
        wrong(format!("line {line}: {}", error.message()))
    })?;
    // A first workflow may well have this name: it holds tasks, and no settings.
    if table.contains_key("task") {
        return Ok(None);
    }
    let mut values = BTreeMap::new();
    for (key, value) in table {
        if !KEYS.iter().any(|(known, _)| *known == key) {
            let known: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
            let failure = wrong(format!("unknown setting '{key}'"));
            return Err(failure.hint(meant(&key, &known, "known settings")));
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            other => {
                return Err(wrong(format!(
                    "{key}: {} where text or a number belongs",
                    other.type_str()
                )));
            }
        };
        values.insert(key, value);
    }
    Ok(Some(Layer { origin: path.display().to_string(), values }))
}

/// The default instance directory.
pub fn default_dir(env: impl Fn(&str) -> Option<String>, user: u32) -> PathBuf {
    let set = |name| env(name).filter(|value: &String| !value.is_empty()).map(PathBuf::from);
    match set("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("starling/default"),
        None => {
            let temporary = set("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
            temporary.join(format!("starling-{user}/default"))
        }
    }
}

/// Refuses a directory of another user, or one that other users may write to. A missing one will be
/// made for this user only.
pub fn check_owner(dir: &Path, user: u32) -> Result<(), Failure> {
    // Both the link and its target are checked.
    let (link, found) = match (std::fs::symlink_metadata(dir), std::fs::metadata(dir)) {
        (Ok(link), Ok(found)) => (link, found),
        // The directory is missing or unreachable, which its later use reports.
        _ => return Ok(()),
    };
    let refuse = |what: String, hint: &str| {
        Err(Failure::refused(format!("{} {what}", dir.display())).hint(hint))
    };
    if link.uid() != user || found.uid() != user {
        return refuse("belongs to another user".to_owned(), "name a directory with --dir");
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => refuse(
            format!("may be written to by others (mode {:04o})", found.mode() & 0o7777),
            "make it private: chmod 700; or name another with --dir",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(env: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Settings, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (name, text) in files {
            paths.push(dir.path().join(name));
            std::fs::write(paths.last().unwrap(), text).unwrap();
        }
        paths.push(dir.path().join("absent.toml"));
        std::fs::create_dir(dir.path().join("directory.toml")).unwrap();
        paths.push(dir.path().join("directory.toml"));
        let find = |name: &str| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::from(find, &paths)
    }

    #[test]
    fn a_setting_without_a_value_is_an_error_where_one_is_needed() {
        let settings = settings(&[("STARLING_POLICY", "auto")], &[]);
        let failure = settings.unwrap().pick::<String>(None, "policy").unwrap_err();
        let text = "STARLING_POLICY: policy: 'auto' means no value, and this setting needs one";
        assert_eq!(failure.message, text);
    }

    #[test]
    fn nearer_settings_win() {
        let files = [("near.toml", "nodes = 3\nslots = 5"), ("far.toml", "slots = 6\nscale = 0.5")];
        let settings = settings(&[("STARLING_NODES", "2")], &files).unwrap();
        let number = |key| settings.pick::<u32>(None, key).unwrap();
        assert_eq!(settings.pick(Some(1_u32), "nodes").unwrap(), 1, "a flag beats all");
        assert_eq!(number("nodes"), 2, "then the environment");
        assert_eq!(number("slots"), 5, "then the nearer file");
        assert_eq!(settings.pick::<f64>(None, "scale").unwrap(), 0.5, "then the farther file");
        assert_eq!(
            settings.pick::<String>(None, "policy").unwrap(),
            "eft",
            "then what is built in"
        );
        assert_eq!(settings.get("nodes").unwrap().1, "STARLING_NODES");
        assert!(settings.get("slots").unwrap().1.ends_with("near.toml"));
        assert!(settings.get("dir").is_none());
        assert_eq!(settings.pick_optional::<u32>(None, "timeout").unwrap(), None);
    }

    #[test]
    fn files_can_be_left_out() {
        let files = [("near.toml", "slots = 5"), ("wrong.toml", "slots = [")];
        let env = [(CONFIG, CONFIG_NONE), ("STARLING_NODES", "2")];
        let left_out = settings(&env, &files).unwrap();
        assert_eq!(left_out.pick_optional::<u32>(None, "slots").unwrap(), None);
        assert_eq!(left_out.pick::<u32>(None, "nodes").unwrap(), 2, "not the environment");
        assert!(settings(&env[1..], &files).is_err(), "they are read otherwise");
    }

    #[test]
    fn wrong_settings_name_their_place() {
        let message = |result: Result<Settings, Failure>| result.unwrap_err().message;
        let text = message(settings(&[], &[("a.toml", "nodes = 1\nnods = 2")]));
        assert!(text.ends_with("a.toml: unknown setting 'nods'"), "{text}");
        let text = message(settings(&[], &[("a.toml", "nodes = 1\n= 2")]));
        assert!(text.contains("a.toml: line 2: "), "{text}");
        let text = message(settings(&[], &[("a.toml", "nodes = [1]")]));
        assert!(text.ends_with("a.toml: nodes: array where text or a number belongs"), "{text}");
        let settings = settings(&[("STARLING_SLOTS", "many")], &[]).unwrap();
        let failure = settings.pick::<u32>(None, "slots").unwrap_err();
        assert_eq!(failure.message, "STARLING_SLOTS: slots: 'many': it is not a whole number");
    }

    #[test]
    fn the_default_directory_is_the_users_own() {
        let none = |_: &str| None;
        assert_eq!(default_dir(none, 7), PathBuf::from("/tmp/starling-7/default"));
        let runtime = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".to_owned());
        assert_eq!(default_dir(runtime, 7), PathBuf::from("/run/user/7/starling/default"));
        let temporary = |name: &str| (name == "TMPDIR").then(|| "/scratch".to_owned());
        assert_eq!(default_dir(temporary, 7), PathBuf::from("/scratch/starling-7/default"));
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let user = std::fs::metadata(dir.path()).unwrap().uid();
        let mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.path(), permissions).unwrap();
            check_owner(dir.path(), user).map_err(|failure| failure.message)
        };
        assert_eq!((mode(0o700), mode(0o755)), (Ok(()), Ok(())));
        for open in [0o720, 0o702, 0o1777] {
            assert!(mode(open).unwrap_err().contains("may be written to by others"), "{open:o}");
        }
        assert_eq!(mode(0o700), Ok(()));
        let other = check_owner(dir.path(), user + 1).unwrap_err();
        assert!(other.message.ends_with("belongs to another user"), "{}", other.message);
        assert!(check_owner(&dir.path().join("absent"), user + 1).is_ok());
    }
}
