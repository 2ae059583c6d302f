//! `--bundle`: what a person needs to look into a problem, without keys.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tar::{Builder, Header};
use verb::Context;
use verb::errors::Failure;
use verb::files;
use verb::settings::KEYS;

use super::Report;

/// The end of each log that is taken.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of nodes with logs in the bundle.
const NODES_MAX: usize = 256;
/// The logs of a node. Only these files are taken: no other file can be a key.
const LOGS: [&str; 2] = ["node.log", "state/log"];

#[derive(Serialize)]
struct Setting<'s> {
    key: &'s str,
    value: &'s str,
    origin: &'s str,
}

#[derive(Serialize)]
struct WithSchema<'v, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'v T,
}

pub(super) fn write(
    context: &Context,
    path: &Path,
    report: &Report<'_>,
    dir: Option<&Path>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let json = serde_json::to_vec_pretty(&WithSchema { schema: 1, value: report });
    add(&mut builder, "doctor.json", &json.expect("texts always serialise")).map_err(failed)?;
    let settings = KEYS.iter().filter_map(|(key, _)| {
        let (value, origin) = context.settings.get(key)?;
        Some(Setting { key, value, origin })
    });
    let settings: Vec<Setting<'_>> = settings.collect();
    let json = serde_json::to_vec_pretty(&settings).expect("texts always serialise");
    add(&mut builder, "settings.json", &json).map_err(failed)?;
    for (name, log) in dir.map(logs).unwrap_or_default() {
        // A log that cannot be read is left out; the bundle has the others.
        if let Ok(bytes) = tail(&log) {
            add(&mut builder, &name, &bytes).map_err(failed)?;
        }
    }
    let bytes = builder.into_inner().and_then(GzEncoder::finish).map_err(failed)?;
    files::put(path, &bytes)
}

fn add(builder: &mut Builder<GzEncoder<Vec<u8>>>, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    builder.append_data(&mut header, format!("starling-doctor/{name}"), bytes)
}

/// The logs of the nodes of an instance on this machine, with their names in the bundle.
fn logs(dir: &Path) -> Vec<(String, PathBuf)> {
    let nodes = fs::read_dir(dir.join("nodes")).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for node in nodes.take(NODES_MAX) {
        let name = node.file_name().to_string_lossy().into_owned();
        for log in LOGS {
            let path = node.path().join(log);
            // A link could lead to a key.
            if fs::symlink_metadata(&path).is_ok_and(|it| it.is_file()) {
                found.push((format!("nodes/{name}/{}", log.replace('/', "-")), path));
            }
        }
    }
    found.sort();
    found
}

/// The end of a file.
fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
