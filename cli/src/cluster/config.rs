//! `starling config`: the effective settings, their origins, and the user's file of settings.

use clap::Subcommand;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::settings::{DIR_VARIABLE, KEYS, odd_variable};

use crate::common::settings_file;

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigVerb {
    /// Show the effective settings without flags
    Show {
        /// And the origin of each
        #[arg(long)]
        origin: bool,
    },
    /// Print the effective value of a setting
    Get {
        /// The setting, as 'starling config show' lists it
        key: String,
    },
    /// Write a setting into the user's file
    Set {
        /// The setting, as 'starling config show' lists it
        key: String,
        /// The value, as the flag of this name takes it
        #[arg(allow_negative_numbers = true)]
        value: String,
        /// Into ./starling.toml
        #[arg(long)]
        here: bool,
    },
    /// Remove a setting from the user's file
    Unset {
        /// The setting
        key: String,
        /// From ./starling.toml
        #[arg(long)]
        here: bool,
    },
    /// Print the path of the user's file
    Path {
        /// Of the file in this directory
        #[arg(long)]
        here: bool,
    },
}

#[derive(Serialize)]
struct SettingRow {
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    key: &'static str,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

#[derive(Serialize)]
struct FileRow {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

pub(crate) fn run(context: &Context, verb: &ConfigVerb) -> Done {
    match verb {
        ConfigVerb::Show { origin } => show(context, *origin),
        ConfigVerb::Get { key } => get(context, key),
        ConfigVerb::Set { key, value, here } => write(context, key, Some(value), *here),
        ConfigVerb::Unset { key, here } => write(context, key, None, *here),
        ConfigVerb::Path { here } => {
            let file = settings_file::path(*here)?.display().to_string();
            match context.output.json {
                true => context.output.json(&FileRow { file, key: None, value: None })?,
                false => context.output.line(&file)?,
            }
            Ok(Exit::Ok)
        }
    }
}

/// The value of a setting, and its origin.
fn effective(context: &Context, key: &str) -> Result<(String, String), Failure> {
    let dir = || Ok::<_, Failure>(context.dir_path()?.display().to_string());
    let (value, origin) = match (key, context.settings.get(key)) {
        ("dir", _) if context.is_dir_given() => (dir()?, "--dir"),
        ("dir", _) if odd_variable(DIR_VARIABLE).is_some() => (dir()?, DIR_VARIABLE),
        (_, Some((value, origin))) => (value.to_owned(), origin),
        // The only key with a value that depends on the machine.
        (_, None) => (dir()?, "built in"),
    };
    Ok((value, origin.to_owned()))
}

fn get(context: &Context, key: &str) -> Done {
    settings_file::check_key(key)?;
    let (value, _) = effective(context, key)?;
    match context.output.json {
        true => {
            context.output.json(&SettingRow { settings: vec![setting(context, key, true)?] })?
        }
        false => context.output.line(&value)?,
    }
    Ok(Exit::Ok)
}

fn setting(context: &Context, key: &str, with_origin: bool) -> Result<Setting, Failure> {
    let (value, origin) = effective(context, key)?;
    let key = KEYS.iter().map(|(key, _)| *key).find(|known| *known == key).unwrap_or_default();
    Ok(Setting { key, value, origin: with_origin.then_some(origin) })
}

/// Writes a setting, or removes it.
fn write(context: &Context, key: &str, value: Option<&String>, here: bool) -> Done {
    settings_file::check_key(key)?;
    if let Some(value) = value {
        settings_file::check_value(key, value)?;
    }
    let path = settings_file::path(here)?;
    settings_file::put(&path, key, value.map(String::as_str))?;
    let file = path.display().to_string();
    if context.output.json {
        let (key, value) = (Some(key.to_owned()), value.cloned());
        context.output.json(&FileRow { file: file.clone(), key, value })?;
    } else {
        context.output.note(&format!("written to {file}"));
    }
    // The layers were read before.
    let (_, origin) = effective(context, key)?;
    let is_nearer = origin.starts_with("STARLING_") || !here && origin.ends_with("starling.toml");
    if is_nearer && origin != file {
        context.output.note(&format!("note: {origin} has {key}, too, and takes precedence"));
    }
    Ok(Exit::Ok)
}

fn show(context: &Context, with_origin: bool) -> Done {
    let settings = KEYS.iter().map(|(key, _)| setting(context, key, with_origin));
    let settings: Vec<Setting> = settings.collect::<Result<_, _>>()?;
    if context.output.json {
        context.output.json(&SettingRow { settings })?;
    } else {
        let row = |setting: Setting| {
            let mut row = vec![setting.key.to_owned(), setting.value];
            row.extend(setting.origin);
            row
        };
        let rows: Vec<_> = settings.into_iter().map(row).collect();
        let header: &[&str] =
            if with_origin { &["key", "value", "origin"] } else { &["key", "value"] };
        context.output.table(header, &rows)?;
    }
    Ok(Exit::Ok)
}
