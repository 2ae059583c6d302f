//! The packages of a release: `scripts/dist` makes them, and their recipes have one version.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::Findings;

/// The files that repeat the version of the workspace, and the text around it.
const VERSIONS: [(&str, &str, &str); 7] = [
    ("python/pyproject.toml", "\nversion = \"", "\""),
    ("packaging/conda/meta.yaml", "\"STARLING_VERSION\", \"", "\""),
    ("packaging/container/starling.def", "\n    VERSION=", "\n"),
    ("packaging/spack/packages/starling/package.py", "version(\"", "\""),
    ("packaging/easybuild/Starling-0.1.0.eb", "\nversion = '", "'"),
    ("packaging/spack/packages/starling/package.py", "/starling-", "-x86_64"),
    ("packaging/container/Containerfile", "VERSION=", " "),
];

pub(crate) fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let findings = check(root);
    if !findings.is_empty() {
        for finding in findings {
            eprintln!("dist: {finding}");
        }
        return ExitCode::FAILURE;
    }
    let mut script = Command::new(root.join("scripts/dist"));
    match script.args(arguments).current_dir(root).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("dist: scripts/dist did not start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Finds files with another version than the workspace.
fn check(root: &Path) -> Findings {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let Some(version) = between(&read("Cargo.toml"), "\nversion = \"", "\"") else {
        return vec!["Cargo.toml has no version".to_owned()];
    };
    let differs = |&(file, before, after): &(&str, &str, &str)| {
        let found = between(&read(file), before, after);
        let found = found.unwrap_or_else(|| "none".to_owned());
        (found != version).then(|| format!("{file} has version {found}, not {version}"))
    };
    VERSIONS.iter().filter_map(differs).collect()
}

/// The text after `before` and up to `after`.
fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(rest[..rest.find(after)?].trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_have_the_version_of_the_workspace() {
        assert_eq!(check(&crate::root()), Findings::new());
    }

    #[test]
    fn a_recipe_with_another_version_is_found() {
        let root = std::env::temp_dir().join(format!("starling-xtask-dist-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("Cargo.toml"), "[workspace.package]\nversion = \"0.2.0\"\n").unwrap();
        let findings = check(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(findings.len(), VERSIONS.len());
        assert_eq!(findings[0], "python/pyproject.toml has version none, not 0.2.0");
    }
}
