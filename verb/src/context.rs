//! The context of a verb: its output, its settings, its instance, and its runtime.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Client, ClientError, ClientOptions};

use crate::errors::{Failure, plain};
use crate::local::processes;
use crate::output::Output;
use crate::path_templates;
use crate::settings::{self, Settings};

/// The context of every verb beside its own arguments.
#[derive(Clone, Debug)]
pub struct Context {
    pub output: Output,
    pub settings: Settings,
    /// `--dir` as given; see [`Context::dir`].
    dir: Option<PathBuf>,
}

impl Context {
    /// `dir`: `--dir` as given.
    pub fn new(output: Output, settings: Settings, dir: Option<PathBuf>) -> Self {
        Self { output, settings, dir }
    }

    /// The same with other settings.
    #[must_use]
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// True if the command line has `--dir`.
    pub fn is_dir_given(&self) -> bool {
        self.dir.is_some()
    }

    /// The instance's directory, by flag, setting or default; absolute. A directory that other
    /// users could have made is refused: they would know its keys.
    pub fn dir(&self) -> Result<PathBuf, Failure> {
        let user = rustix::process::geteuid().as_raw();
        let dir = self.dir_path()?;
        if self.chosen_dir()?.is_none() {
            // Lies where others write too.
            settings::check_owner(dir.parent().unwrap_or(&dir), user)?;
        }
        settings::check_owner(&dir, user)?;
        Ok(dir)
    }

    /// A flag or a setting. The variable may hold a name that is no text.
    fn chosen_dir(&self) -> Result<Option<PathBuf>, Failure> {
        match settings::odd_variable(settings::DIR_VARIABLE).filter(|_| self.dir.is_none()) {
            Some(name) => Ok(Some(name.into())),
            None => self.settings.pick_optional(self.dir.clone(), "dir"),
        }
    }

    /// Where [`Self::dir`] is, under any owner.
    pub fn dir_path(&self) -> Result<PathBuf, Failure> {
        let chosen = self.chosen_dir()?;
        // A variable holds a path as it is: nodes tell it to tasks. A user's text has placeholders.
        let origin = self.settings.get("dir").map(|(_, origin)| origin);
        let is_odd = settings::odd_variable(settings::DIR_VARIABLE).is_some();
        let is_text = self.dir.is_some() || !is_odd && origin != Some(settings::DIR_VARIABLE);
        let dir = match chosen {
            Some(text) if is_text => path_templates::expand(
                &text,
                path_templates::Scope { flag: "--dir", rank: Err(path_templates::ALL_SHARE) },
            )?,
            Some(dir) => dir,
            None => {
                let user = rustix::process::getuid().as_raw();
                settings::default_dir(|name| std::env::var(name).ok(), user)
            }
        };
        std::path::absolute(&dir).map_err(|error| Failure::file(&dir, &error))
    }

    /// A client of the instance.
    pub async fn connect(&self) -> Result<Client, Failure> {
        let dir = self.dir()?;
        Client::connect(&dir).await.map_err(|error| with_reason(&dir, error))
    }

    /// A client of the instance that can change nothing. It gives up a request after this long.
    pub async fn connect_to_read(&self, request_timeout: Duration) -> Result<Client, Failure> {
        let dir = self.dir()?;
        let options = ClientOptions { request_timeout };
        let connected = Client::connect_to_read(&dir, options).await;
        connected.map_err(|error| with_reason(&dir, error))
    }
}

/// Nodes that ran in the background have the reason of their end in their logs.
fn with_reason(dir: &Path, error: ClientError) -> Failure {
    match error {
        ClientError::ClusterUnreachable(_) => match processes::last_error(dir) {
            Some(reason) => Failure::from(error).because(&reason),
            None => error.into(),
        },
        _ => error.into(),
    }
}

/// Runs a verb's future on this thread; an interrupt ends it.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime()?.block_on(async {
        tokio::select! {
            // The handlers are installed before the verb does anything.
            biased;
            () = interrupted() => Err(Failure::interrupted()),
            done = future => done,
        }
    })
}

/// The runtime of a verb, on this thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Failure::lost(format!("cannot start the runtime: {}", plain(&error))))
}

/// Returns on Ctrl-C or a request to terminate.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let both = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = both else {
        // Without handlers the signals end the process in the default way.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
