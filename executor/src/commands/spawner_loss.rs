//! A spawner process that has died or hangs: its attempts end, and `task explain` says so.

use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::work::Outcome;
use rustix::process::Pid;

use super::{Commands, Inner, Link, collect, orphan_processes};
use crate::spawner::liveness::SpawnerLiveness;
use crate::spawner::process;

/// A spawner answers at once. From this number of unanswered queries on, it is said to hang.
const UNANSWERED_TOLD_MIN: u32 = 3;

impl Commands {
    /// The reason why no command starts now, if there is one.
    pub(crate) fn trouble(&self) -> Option<String> {
        let Some(Ok(_)) = self.threads.get() else { return None };
        let node = self.inner.shared.config.node;
        let unanswered = self.inner.unanswered.load(Ordering::Relaxed);
        let why = match &self.inner.state().link {
            Link::Broken(error) => error.clone(),
            Link::Down => "its spawner process is not up; one starts".to_owned(),
            Link::Up(_) if unanswered >= UNANSWERED_TOLD_MIN => format!(
                "its spawner process hangs: {unanswered} queries, {:?} apart, have no answer",
                SpawnerLiveness::wait()
            ),
            Link::Up(_) => return None,
        };
        Some(format!("{node} starts no commands now: {why}"))
    }
}

/// Cleans up after a spawner: kills its remaining processes and ends all its attempts.
pub(super) fn reap_spawner(
    inner: &Inner,
    child: &mut Child,
    stream: &UnixStream,
    hung: bool,
) -> String {
    inner.state().link = Link::Down;
    let _ = stream.shutdown(std::net::Shutdown::Both);
    if !inner.shared.is_stopping() {
        // The spawner closed the connection or sent garbage, so it is not trusted to kill its
        // commands.
        let _ = child.kill();
    }
    let status = process::await_end(child);
    let session = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(session) = session {
        orphan_processes::kill_session(session, Duration::from_secs(5));
    }
    orphan_processes::kill_marked(&inner.shared.config.mark, Duration::from_secs(5));
    let node = inner.shared.config.node;
    let text = format!("the spawner process of {node} ended ({status}); the command was killed");
    let lost = std::mem::take(&mut inner.state().running);
    for (_, running) in lost {
        collect::clean_up(&inner.shared, &running.workspace);
        let outcome = Outcome { error: text.clone(), lost: true, hung, ..Outcome::default() };
        inner.shared.finish(running.key, outcome);
    }
    text
}
