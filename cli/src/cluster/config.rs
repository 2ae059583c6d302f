//! `starling config show`: the effective settings, and their origins.

use clap::Subcommand;
use serde::Serialize;

use crate::Context;
use crate::common::errors::{Done, Exit};
use crate::common::settings::{DIR_VARIABLE, KEYS, odd_variable};

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigVerb {
    /// Show the effective settings without flags
    Show {
        /// And the origin of each
        #[arg(long)]
        origin: bool,
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

pub(crate) fn run(context: &Context, verb: &ConfigVerb) -> Done {
    let ConfigVerb::Show { origin: with_origin } = verb;
    let mut settings = Vec::new();
    for (key, _) in KEYS {
        let (value, origin) = match (key, context.settings.get(key)) {
            ("dir", _) if context.dir.is_some() => {
                (context.dir_path()?.display().to_string(), "--dir")
            }
            ("dir", _) if odd_variable(DIR_VARIABLE).is_some() => {
                (context.dir_path()?.display().to_string(), DIR_VARIABLE)
            }
            (_, Some((value, origin))) => (value.to_owned(), origin),
            // The only key with a value that depends on the machine.
            (_, None) => (context.dir_path()?.display().to_string(), "built in"),
        };
        let origin = with_origin.then(|| origin.to_owned());
        settings.push(Setting { key, value, origin });
    }
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
            if *with_origin { &["key", "value", "origin"] } else { &["key", "value"] };
        context.output.table(header, &rows)?;
    }
    Ok(Exit::Ok)
}
